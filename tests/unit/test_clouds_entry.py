"""What is wrong in the entry of a cloud in clouds.yaml: told by file and key, before any request."""

import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives import serialization
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabric_direct.cli import main
from fabric_direct.doctor import Verdict
from fabric_direct.doctor.cloud import examine_cloud
from fabric_direct.drivers.openstack.client import session
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.errors import InvalidSite
from fabric_direct.site.config import OpenStackSettings
from tests.scripted_zone import Authority
from tests.unit.openstack_api import PASSWORD, LoopbackCloud, OpenStackApi

Spoil = Callable[[Path], str]
"""Makes something in a folder that a key of clouds.yaml names; returns what it names."""
KEYS = ("cacert", "cert", "key")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A CA, and a certificate of its with the key."""
    authority = Authority(tmp_path)
    issued = authority.issue("client")
    return {"cacert": str(authority.file), "cert": issued["certificate"], "key": issued["key"]}


def refusal(api: OpenStackApi) -> InvalidSite:
    with pytest.raises(InvalidSite) as caught:
        cloud(api.settings)
    assert (api.logins, api.documents, api.calls) == (0, [], [])
    return caught.value


def write(api: OpenStackApi, content: Any) -> None:
    api.clouds.write_text(json.dumps(content))


def entry(api: OpenStackApi) -> dict[str, Any]:
    """Return the entry, which is right."""
    found: dict[str, Any] = json.loads(api.clouds.read_text())["clouds"]["test"]
    return found


def absent(folder: Path) -> str:
    return str(folder / "nowhere.pem")


def unreadable(folder: Path) -> str:
    (folder / "loop").symlink_to(folder / "loop")
    return str(folder / "loop")


def directory(folder: Path) -> str:
    (folder / "empty").mkdir()
    return str(folder / "empty")


def pem_itself(folder: Path) -> str:
    return Authority(folder, "inline").file.read_text()


def without_pem(folder: Path) -> str:
    (folder / "notes.txt").write_text("the certificate is on the other server\n")
    return str(folder / "notes.txt")


SPOILT: list[tuple[Spoil, str]] = [
    (absent, "cannot read"),
    (unreadable, "cannot read"),
    (directory, "director|not a file"),
    (pem_itself, "must be the path of a file"),
    (without_pem, "no (valid )?(certificate|private key) in PEM form"),
]


class TestFiles:
    @pytest.mark.parametrize("key", KEYS)
    @pytest.mark.parametrize(("spoil", "words"), SPOILT)
    def test_that_cannot_be_used_are_refused_by_file_and_key(
        self,
        api: OpenStackApi,
        files: dict[str, str],
        tmp_path: Path,
        key: str,
        spoil: Spoil,
        words: str,
    ) -> None:
        api.write_clouds(**(files | {key: spoil(tmp_path)}))

        found = refusal(api)

        assert found.field == f"clouds.test.{key}"
        assert found.where == str(api.clouds)
        assert re.search(words, found.what)
        assert "BEGIN" not in str(found)
        assert "\n" not in str(found)

    def test_that_are_right_are_used(self, loopback: LoopbackCloud, files: dict[str, str]) -> None:
        loopback.answer("GET", "network", "/ports", {"ports": []})
        loopback.write_clouds(**files)

        assert list(cloud(loopback.settings).network.ports()) == []

    def test_a_certificate_may_have_its_key_in_its_file(
        self, api: OpenStackApi, files: dict[str, str], tmp_path: Path
    ) -> None:
        both = tmp_path / "both.pem"
        both.write_text(Path(files["cert"]).read_text() + Path(files["key"]).read_text())
        api.write_clouds(cert=str(both))

        cloud(api.settings)

    def test_a_certificate_without_its_key_is_told_by_which_key_names_that(
        self, api: OpenStackApi, files: dict[str, str]
    ) -> None:
        api.write_clouds(cert=files["cert"])

        found = refusal(api)

        assert (found.field, found.remedy) == ("clouds.test.cert", "name it by key")

    def test_a_key_of_another_certificate_is_refused(
        self, api: OpenStackApi, files: dict[str, str], tmp_path: Path
    ) -> None:
        other = Authority(tmp_path, "other").issue("other")
        api.write_clouds(**(files | {"key": other["key"]}))

        found = refusal(api)

        assert (found.field, found.why) == ("clouds.test.key", "key values mismatch")

    def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(
        self, api: OpenStackApi, files: dict[str, str]
    ) -> None:
        path = Path(files["key"])
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        sealed = key.private_bytes(pem, form, serialization.BestAvailableEncryption(b"hunter2"))
        path.write_bytes(sealed)
        api.write_clouds(**files)

        assert "has a password" in str(refusal(api))

    def test_a_directory_of_certificates_is_taken_as_openssl_has_them(
        self, api: OpenStackApi, files: dict[str, str], tmp_path: Path
    ) -> None:
        trusted = Path(directory(tmp_path))
        (trusted / "5ed36f99.0").write_bytes(Path(files["cacert"]).read_bytes())
        api.write_clouds(cacert=str(trusted))

        cloud(api.settings)

    @pytest.mark.filterwarnings("ignore:You are specifying a cacert")
    def test_a_cacert_that_nothing_is_verified_with_is_not_looked_at(
        self, api: OpenStackApi
    ) -> None:
        api.write_clouds(cacert="/nowhere.pem", verify=False)

        cloud(api.settings)

    @pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
    def test_that_the_environment_names_are_refused_by_its_name(
        self, api: OpenStackApi, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setenv(name, "/nowhere.pem")

        found = refusal(api)

        assert (found.field, found.where) == (name, "the environment")

    def test_that_go_while_they_are_used_end_a_request_in_an_error_of_ours(
        self, loopback: LoopbackCloud, files: dict[str, str]
    ) -> None:
        loopback.answer("GET", "network", "/ports", {"ports": []})
        loopback.write_clouds(**files)
        list(cloud(loopback.settings).network.ports())
        Path(files["cert"]).unlink()

        with pytest.raises(InvalidSite, match="not there any more"):
            list(cloud(loopback.settings).network.ports())


class TestValues:
    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            ("region_name", None, "must be text, is empty"),
            ("region_name", {"a": 1}, "must be text, is a mapping"),
            ("regions", None, "must be a list of names, is empty"),
            ("auth", None, "must be a mapping of fields, is empty"),
            ("auth", [], "must be a mapping of fields, is a list"),
            ("auth_type", None, "must be text, is empty"),
            ("auth_type", "", "must be text, is ''"),
            ("api_timeout", "soon", "must be a number of seconds, is 'soon'"),
            ("api_timeout", [], "must be a number of seconds, is a list"),
            ("compute_connect_retries", "often", "must be a whole number, is 'often'"),
            ("verify", "yes", "must be true or false, is 'yes'"),
            ("verify", {"a": 1}, "must be true or false, is a mapping"),
            ("insecure", 1, "must be true or false, is 1"),
            ("interface", True, "must be public, internal or admin, is true"),
            ("interface", "extern", "must be public, internal or admin, is 'extern'"),
            ("identity_api_version", ["3"], "must be a version, is a list"),
            ("profile", 5, "must be the name of a profile, is 5"),
            ("profile", ["a"], "must be the name of a profile, is a list"),
            ("cacert", True, "must be the path of a file, is true"),
            ("networks", None, "must be a list of mappings, is empty"),
            ("compute_endpoint_override", "nova", "must be an address, http://… or https://…"),
        ],
    )
    def test_that_openstacksdk_does_not_expect_are_refused_by_key_and_in_words(
        self, api: OpenStackApi, key: str, value: Any, words: str
    ) -> None:
        api.write_clouds(**{key: value})

        found = refusal(api)

        assert (found.field, found.where) == (f"clouds.test.{key}", str(api.clouds))
        assert found.what.startswith(words)

    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            ("auth_url", None, "must be an address, http://… or https://…, is empty"),
            ("auth_url", "cloud.test:5000", "must be an address"),
            ("auth_url", ["a"], "must be an address"),
            ("username", None, "must be text, is empty"),
            ("password", ["hunter2"], "must be text, is a list"),
            # openstacksdk would ask for a project of the name None.
            ("project_name", None, "must be text, is empty"),
            ("user_domain_id", {"id": "default"}, "must be text, is a mapping"),
        ],
    )
    def test_of_the_credentials_are_refused_by_key_and_not_shown(
        self, api: OpenStackApi, key: str, value: Any, words: str
    ) -> None:
        values = entry(api)
        values["auth"][key] = value
        write(api, {"clouds": {"test": values}})

        found = refusal(api)

        assert found.field == f"clouds.test.auth.{key}"
        assert found.what.startswith(words)
        assert "hunter2" not in str(found)
        assert "cloud.test" not in found.what

    def test_a_password_in_place_of_the_credentials_is_not_shown(self, api: OpenStackApi) -> None:
        api.write_clouds(auth=PASSWORD)

        assert PASSWORD not in str(refusal(api))

    @pytest.mark.parametrize("section", ["clouds", "cache", "client", "metrics"])
    @pytest.mark.parametrize("value", [None, ["test"]])
    def test_a_section_that_is_no_mapping_is_named(
        self, api: OpenStackApi, section: str, value: Any
    ) -> None:
        write(api, {"clouds": {"test": entry(api)}} | {section: value})

        assert refusal(api).field == section

    @pytest.mark.parametrize("value", [None, [1], "text"])
    def test_an_entry_that_is_no_mapping_is_named(self, api: OpenStackApi, value: Any) -> None:
        write(api, {"clouds": {"test": value}})

        assert refusal(api).field == "clouds.test"

    def test_a_key_that_is_no_text_is_named(self, api: OpenStackApi) -> None:
        api.clouds.write_text("clouds: {test: {auth: {}, 5: 6}}")

        assert "the key 5 must be text" in str(refusal(api))

    def test_credentials_that_cannot_be_sent_are_a_wrong_entry(self, api: OpenStackApi) -> None:
        """YAML takes half of a character that JSON writes as two."""
        api.clouds.write_text(api.clouds.read_text().replace("fabric", "\\ud800"))

        assert refusal(api).field == "openstack.cloud"

    def test_what_no_rule_foresees_is_a_wrong_entry_and_no_answer_of_an_api(
        self, api: OpenStackApi
    ) -> None:
        api.write_clouds(passcode="123456")  # the login by password takes none

        found = refusal(api)

        assert found.field == "openstack.cloud"
        assert "openstacksdk cannot read the entry of test" in str(found)
        assert "answer" not in str(found)

    def test_those_of_secure_yaml_are_told_with_both_files(self, api: OpenStackApi) -> None:
        secure = api.clouds.with_name("secure.yaml")
        secure.write_text("clouds: {test: {auth: {password: [hunter2]}}}")

        found = refusal(api)

        assert found.field == "clouds.test.auth.password"
        assert found.where == f"{api.clouds} and {secure}"

    def test_a_secure_yaml_that_is_not_yaml_is_told_by_its_line_and_not_shown(
        self, api: OpenStackApi
    ) -> None:
        secure = api.clouds.with_name("secure.yaml")
        secure.write_text("clouds:\n  test: {auth: {password: hunter2\n")

        found = refusal(api)

        assert str(found).endswith(f"cannot read secure.yaml ({secure}, line 3): it is not YAML")
        assert "hunter2" not in str(found)

    def test_a_file_that_is_searched_for_is_checked_like_one_that_is_named(
        self, api: OpenStackApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(api.clouds))
        write(api, {"clouds": None})

        with pytest.raises(InvalidSite) as caught:
            cloud(OpenStackSettings(cloud="test"))

        assert (caught.value.field, caught.value.where) == ("clouds", str(api.clouds))

    @pytest.mark.parametrize(
        "values",
        [
            {"region_name": ""},
            {"region_name": "RegionOne", "regions": ["RegionOne", {"name": "Two", "values": {}}]},
            {"interface": "publicURL", "identity_api_version": "3", "volume_api_version": 3},
            {"api_timeout": "60", "verify": None, "insecure": "false", "profile": None},
            {"cacert": None, "cert": "", "key": None, "networks": [{"name": "public"}]},
            {"compute_endpoint_override": "http://cloud.test/compute/v2.1", "region-name": "One"},
            {"compute_region_name": None, "connect_retries": 3, "floating_ip_source": "neutron"},
        ],
    )
    def test_that_openstacksdk_understands_are_taken(
        self, api: OpenStackApi, values: dict[str, Any]
    ) -> None:
        api.write_clouds(**values)

        cloud(api.settings)


_KNOWN = (
    *(
        "auth",
        "auth_type",
        "region_name",
        "regions",
        "interface",
        "verify",
        "insecure",
        "api_timeout",
    ),
    *(
        "identity_api_version",
        "profile",
        "cloud",
        "cacert",
        "cert",
        "key",
        "networks",
        "force_ipv4",
    ),
    *("compute_endpoint_override", "connect_retries", "compute_region_name", "external_network"),
)
_SECRET = (
    "auth_url",
    "username",
    "password",
    "project_name",
    "project_id",
    "user_domain_id",
    "token",
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.dictionaries(st.sampled_from(_KNOWN), _VALUES, max_size=2),
    st.dictionaries(st.sampled_from(_SECRET), _VALUES, max_size=2),
)
@pytest.mark.filterwarnings("ignore")
def test_no_entry_ends_in_another_error_than_ours(
    api: OpenStackApi,
    caplog: pytest.LogCaptureFixture,
    values: dict[str, Any],
    secrets: dict[str, Any],
) -> None:
    # openstacksdk logs values; halves of surrogate pairs in a log cannot be sent by pytest-xdist.
    caplog.set_level(logging.CRITICAL + 1)
    right = {"auth_url": "http://cloud.test/identity/v3", "username": "u", "password": PASSWORD}
    write(api, {"clouds": {"test": {"auth": right | secrets, **values}}})
    session._connections.clear()

    with suppress(InvalidSite):
        cloud(api.settings)


class TestCommands:
    """What an operator sees."""

    @pytest.fixture
    def site_path(self, api: OpenStackApi, tmp_path: Path) -> Path:
        settings = {"cloud": "test", "clouds_file": str(api.clouds)}
        site = {
            "site": "TEST",
            "state_dir": str(tmp_path / "state"),
            "drivers": {"VM": "openstack"},
            "openstack": settings,
            "guest": "fake",
        }
        path = tmp_path / "site.yaml"
        path.write_text(json.dumps(site))
        return path

    def run(self, site_path: Path, *words: str) -> Result:
        return CliRunner().invoke(main, ["--site", str(site_path), *words], catch_exceptions=False)

    @pytest.mark.parametrize(
        "words",
        [("list",), ("probe", "vm1"), ("delete", "vm1"), ("topology",)],
    )
    @pytest.mark.parametrize(
        ("key", "value", "said"),
        [
            ("cacert", "/nowhere.pem", "cannot read /nowhere.pem"),
            ("region_name", None, "must be text, is empty"),
        ],
    )
    def test_end_with_a_sentence_and_code_2(
        self,
        api: OpenStackApi,
        site_path: Path,
        words: tuple[str, ...],
        key: str,
        value: Any,
        said: str,
    ) -> None:
        api.write_clouds(**{key: value})

        result = self.run(site_path, *words)

        assert result.exit_code == 2, result.output
        assert f"clouds.test.{key}: {said} ({api.clouds})" in result.output
        assert "Traceback" not in result.output

    @pytest.mark.parametrize("key", ["cacert", "region_name"])
    def test_the_doctor_has_a_failed_line(self, api: OpenStackApi, key: str) -> None:
        api.write_clouds(**{key: "/nowhere.pem" if key == "cacert" else None})

        (found,) = examine_cloud(api.site())

        assert (found.subject, found.verdict) == ("clouds.yaml", Verdict.FAIL)
        assert f"clouds.test.{key}: " in found.found
        assert str(api.clouds) in found.found
        assert found.remedy
