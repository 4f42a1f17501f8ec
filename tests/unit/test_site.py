"""What a site answers about its images, and what it takes for a worker's Python."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from fabric_direct.errors import InvalidSite
from fabric_direct.model import Frozen, LocalPath
from fabric_direct.site.config import Host, ImageSettings, Site, load_site


@pytest.mark.parametrize(
    ("image", "user"),
    [
        ("default_rocky_9", "rocky"),
        ("docker_ubuntu_22", "ubuntu"),
        ("default_centos8_stream", "centos"),
        ("default_debian_12", "debian"),
        ("default_fedora_40", "fedora"),
        ("rocky_on_fedora", "rocky"),
        ("default_freebsd_14_zfs", "freebsd"),
        ("default_openbsd_7", "openbsd"),
        ("default_kali", "root"),
    ],
)
def test_who_logs_in_is_told_by_the_distribution_in_the_images_name(image: str, user: str) -> None:
    assert Site(site="TEST").image(image).user == user


def test_a_user_that_the_site_names_comes_first() -> None:
    site = Site(site="TEST", images={"default_centos9_stream": {"user": "cloud-user"}})
    assert site.image("default_centos9_stream").user == "cloud-user"


def test_an_image_with_a_path_alone_has_the_distributions_user() -> None:
    site = Site(site="TEST", images={"debian-12": {"path": "/images/debian-12.qcow2"}})
    assert site.image("debian-12") == ImageSettings(user="debian", path="/images/debian-12.qcow2")


@pytest.mark.parametrize(
    "python",
    [
        "python3",
        "python3.6",
        "/usr/bin/python3.6",
        "/usr/libexec/platform-python",
        "/opt/a b/python",
    ],
)
def test_a_python_is_named_by_path_or_by_name(python: str) -> None:
    assert Host(python=python).python == python


@pytest.mark.parametrize(
    "python",
    [
        "",
        "-c",
        "bin/python3",
        "./python3",
        "~/python3",
        "python3 -I",
        "a;b",
        "/a\nb",
        "/a\0b",
        "python3\n",
    ],
)
def test_what_is_neither_path_nor_name_is_refused_in_words(python: str) -> None:
    with pytest.raises(ValidationError, match="must be an absolute path, or a name"):
        Host(python=python)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"url": "mysql://h/d"}, "must be postgresql://"),
        ({"url": "postgresql://h"}, "must be postgresql://"),
        ({"url": "postgresql://u:secret@h/d"}, "must have no password"),
        ({"url": "postgresql://u@h/d?password=secret"}, "must have no password"),
        ({"url": "postgresql://u@h/d?passw%6frd=secret"}, "must have no password"),
        ({"url": "postgresql://u@h/d", "lease": 0}, "greater than or equal to 1"),
        ({}, "Field required"),
    ],
)
def test_a_database_of_the_state_that_cannot_be_is_refused(
    settings: dict[str, object], why: str
) -> None:
    with pytest.raises(ValidationError, match=why) as refused:
        Site.model_validate({"site": "TEST", "state_database": settings})
    assert "secret" not in str(refused.value)


def test_a_database_of_the_state_may_name_a_file_of_passwords() -> None:
    database = {"url": "postgresql://u@h/d?passfile=/etc/pgpass&sslmode=verify-full"}
    site = Site.model_validate({"site": "TEST", "state_database": database})
    assert site.state_database
    assert site.state_database.lease == 5


class AcmeSettings(Frozen):
    key_file: LocalPath


class TestFilesThatSiteYamlNames:
    """They are where site.yaml says, in whatever directory the command is run."""

    DOCUMENT = """
site: TEST
state_dir: state
openstack: {cloud: lab, clouds_file: ../clouds.yaml}
guest_access: {ssh_key: ~/key, known_hosts: /etc/known_hosts}
hosts: {w1: {ssh: "ssh://w1", ssh_key: keys/w1}}
volume_pool: disks
"""

    @pytest.fixture
    def site(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
        monkeypatch.setenv("HOME", "/home/me")
        folder = tmp_path / "here"
        folder.mkdir()
        (folder / "site.yaml").write_text(self.DOCUMENT)
        monkeypatch.chdir(tmp_path)
        return load_site(Path("here/site.yaml"))

    def test_are_relative_to_it(self, site: Site, tmp_path: Path) -> None:
        assert site.state_dir == tmp_path / "here/state"
        assert site.hosts["w1"].ssh_key == tmp_path / "here/keys/w1"
        assert site.openstack
        assert site.openstack.clouds_file
        assert site.openstack.clouds_file.resolve() == tmp_path / "clouds.yaml"

    def test_are_so_too_if_its_own_name_is_a_text(self, site: Site) -> None:
        assert load_site("here/site.yaml") == site

    def test_may_be_below_the_users_home(self, site: Site) -> None:
        assert site.guest_access.ssh_key == Path("/home/me/key")

    @pytest.mark.parametrize(
        ("text", "line", "field"),
        [
            ("site: x\nstate_dir: ~nobody-here/st\n", 2, "state_dir"),
            ("site: x\nhosts:\n  w1:\n    ssh_key: ~nobody-here/k\n", 4, "hosts.w1.ssh_key"),
        ],
    )
    def test_are_not_below_the_home_of_a_user_that_is_not_there(
        self, tmp_path: Path, text: str, line: int, field: str
    ) -> None:
        path = tmp_path / "site.yaml"
        path.write_text(text)

        with pytest.raises(InvalidSite) as refused:
            load_site(path)

        said = f"{path}:{line}: {field}: the home directory of ~nobody-here is not known"
        assert str(refused.value) == said
        assert refused.value.field == field

    def test_may_be_named_in_whole(self, site: Site) -> None:
        assert site.guest_access.known_hosts == Path("/etc/known_hosts")

    def test_what_is_on_workers_is_as_it_is_named(self, site: Site) -> None:
        assert site.volume_pool == Path("disks")

    def test_a_site_that_a_program_makes_names_them_itself(self) -> None:
        assert Site(site="TEST", state_dir=Path("state")).state_dir == Path("state")

    def test_those_of_drivers_of_others_are_so_too(self, tmp_path: Path) -> None:
        path = tmp_path / "site.yaml"
        path.write_text("site: TEST\ndriver_settings: {acme: {key_file: secret/key}}\n")
        site = load_site(path).model_copy(update={"site": "another"})

        assert site.settings_of("acme", AcmeSettings).key_file == tmp_path / "secret/key"


@pytest.mark.parametrize(
    ("libvirt", "local"),
    [
        ("qemu:///system", "qemu:///system"),
        ("qemu+ssh://root@worker1/system?keyfile=/k&no_tty=1", "qemu:///system"),
        ("qemu+tls://worker1/system", "qemu:///system"),
        ("qemu+ssh://worker1/system?socket=/run/l/sock", "qemu:///system?socket=/run/l/sock"),
    ],
)
def test_a_host_as_it_is_for_who_runs_on_it(libvirt: str, local: str) -> None:
    here = Host(libvirt=libvirt, ssh="ssh://root@worker1", python="python3.9").as_this_machine()

    assert (here.libvirt, here.ssh, here.python) == (local, None, "python3.9")
