"""A login to a cloud that serves the next command, too."""

import json
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from keystoneauth1.exceptions import Unauthorized

from fabric_direct.cli import main
from fabric_direct.drivers.openstack.client import session
from fabric_direct.drivers.openstack.client.kept_session import VERSIONS_HOLD, keeping
from fabric_direct.drivers.openstack.client.session import cloud
from tests.unit.openstack_api import PASSWORD, OpenStackApi

Asked = tuple[int, int]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state/cloud"


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "test.json"


@pytest.fixture(autouse=True)
def answers(api: OpenStackApi) -> None:
    api.answer("GET", "compute", "/servers/detail", {"servers": []})
    api.answer("GET", "network", "/ports", {"ports": []})
    api.answer("GET", "network", "/floatingips", {"floatingips": []})
    api.answer("GET", "volume", "/volumes/detail", {"volumes": []})


def asked(api: OpenStackApi, folder: Path) -> Asked:
    """Return how often a new process logs in, and how many version documents it reads."""
    before = api.logins, len(api.documents)
    session._connections.clear()
    with keeping(folder):
        found = cloud(api.settings)
        list(found.compute.servers())
        list(found.network.ports())
    return api.logins - before[0], len(api.documents) - before[1]


def test_is_made_once(api: OpenStackApi, folder: Path) -> None:
    logins, documents = asked(api, folder)
    assert logins == 1
    assert documents

    assert asked(api, folder) == (0, 0)


def test_is_its_owners_alone(api: OpenStackApi, folder: Path, path: Path) -> None:
    asked(api, folder)

    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [*folder.iterdir()] == [path]
    assert folder.parent.stat().st_mode & 0o077, "QEMU's user must get through to the volumes"


def test_of_other_credentials_is_another(api: OpenStackApi, folder: Path) -> None:
    asked(api, folder)
    text = api.clouds.read_text()
    api.write_clouds(password=PASSWORD + "2")

    assert asked(api, folder)[0] == 1

    api.clouds.write_text(text)
    assert asked(api, folder)[0] == 1


def test_that_the_cloud_refuses_by_now_is_made_anew(api: OpenStackApi, folder: Path) -> None:
    asked(api, folder)
    api.refused.add(api.token)

    assert asked(api, folder) == (1, 0)
    assert asked(api, folder) == (0, 0)


def test_that_has_expired_is_made_anew(api: OpenStackApi, folder: Path, path: Path) -> None:
    asked(api, folder)
    path.write_text(path.read_text().replace("2999-01-01", "2001-01-01"))

    assert asked(api, folder)[0] == 1


def test_versions_are_asked_for_again_after_an_hour(
    api: OpenStackApi, folder: Path, path: Path
) -> None:
    asked(api, folder)
    kept = json.loads(path.read_text())
    for version in kept["versions"].values():
        assert version["until"] - time.time() <= VERSIONS_HOLD
        version["until"] -= VERSIONS_HOLD
    path.write_text(json.dumps(kept))

    logins, documents = asked(api, folder)
    assert logins == 0
    assert documents


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"credentials": 1}', "\xff", '{"credentials": null}']
)
def test_a_damaged_file_is_none(api: OpenStackApi, folder: Path, path: Path, text: str) -> None:
    folder.mkdir(parents=True)
    path.write_text(text)

    assert asked(api, folder)[0] == 1
    assert asked(api, folder)[0] == 0


@pytest.mark.parametrize("part", ["token", "versions"])
@pytest.mark.parametrize(
    "value", [None, 1, "x", [], {"a": {}}, '{"body": {}}', '{"auth_token": 1}']
)
def test_a_damaged_part_is_none(
    api: OpenStackApi, folder: Path, path: Path, part: str, value: object
) -> None:
    asked(api, folder)
    path.write_text(json.dumps(json.loads(path.read_text()) | {part: value}))

    asked(api, folder)

    assert asked(api, folder) == (0, 0)


def test_a_version_of_which_a_part_is_missing_is_none(
    api: OpenStackApi, folder: Path, path: Path
) -> None:
    asked(api, folder)
    kept = json.loads(path.read_text())
    for version in kept["versions"].values():
        del version["status"]
    path.write_text(json.dumps(kept))

    assert asked(api, folder)[1]


def test_that_cannot_be_kept_is_one_all_the_same(api: OpenStackApi, folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("no directory")

    assert asked(api, folder)[0] == 1


def test_a_refused_password_is_told(api: OpenStackApi, folder: Path) -> None:
    asked(api, folder)
    api.refused |= {api.token, PASSWORD}

    with pytest.raises(Unauthorized):
        asked(api, folder)


def test_serves_the_commands_of_a_site(api: OpenStackApi, folder: Path, tmp_path: Path) -> None:
    site = api.site(state_dir=str(folder.parent), drivers={"VM": "openstack"}, guest="none")
    values = site.model_dump(mode="json", exclude_unset=True)
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(values))
    for _ in range(2):
        session._connections.clear()
        result = CliRunner().invoke(main, ["--site", str(tmp_path / "site.yaml"), "probe", "s1"])
        assert "s1: absent" in result.output

    assert api.logins == 1
