"""What site.yaml names is checked when it is read: types, drivers, guests, URIs."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from fabric_direct.errors import InvalidSite
from fabric_direct.site.config import Host, Site, load_site
from fabric_direct.site.drivers import driven_types
from tests.unit.driver_packages import Packages, packages
from tests.unit.test_driver_packages import VM

__all__ = ["packages"]

TWICE = ("      - {type: GPU, bdf: '0000:21:00.0'}", "      - {type: FPGA, bdf: '21:00.0'}")


def read(tmp_path: Path, *lines: str) -> Site:
    """Read a site of these lines, of which the first is line 2."""
    path = tmp_path / "site.yaml"
    path.write_text("\n".join(["site: TEST", *lines]))
    return load_site(path)


@pytest.mark.parametrize(
    ("lines", "field", "said"),
    [
        (["drivers: {Storge: fake}"], "drivers.Storge", "did you mean 'Storage'?"),
        (["drivers:", "  VM: fake", "  vnic: fake"], "drivers.vnic", "did you mean 'vNIC'?"),
        (
            ["drivers: {compute: fake}"],
            "drivers.compute",
            "unknown resource type; known: BareMetal, ",
        ),
        (["drivers: {VM_A30: fake}"], "drivers.VM_A30", "only devices have models"),
        (["drivers: {'FABNetv4_': ovs}"], "drivers.FABNetv4_", "only devices have models"),
        (["drivers: {GPUs_A30: fake}"], "drivers.GPUs_A30", "did you mean 'GPU'?"),
        (["drivers: {VM: fakee}"], "drivers.VM", "no compute driver 'fakee', did you mean 'fake'?"),
        (["drivers: {FABNetv4: libvirt}"], "drivers.FABNetv4", "no service driver 'libvirt'"),
        (["drivers:", "  GPU_A30: magic"], "drivers.GPU_A30", "no device driver 'magic'; known: "),
        (["guest: nonee"], "guest", "no guest driver 'nonee', did you mean 'none'?"),
        (["switches:", "  sw1: {driver: ovss}"], "switches.sw1.driver", "did you mean 'ovs'?"),
        (
            ["hosts: {w1: {libvirt: hello}}"],
            "hosts.w1.libvirt",
            "must have the form qemu:///system",
        ),
        (["hosts: {w1: {libvirt: ''}}"], "hosts.w1.libvirt", "must have the form qemu:///system"),
        (["hosts: {w1: {libvirt: 'ssh://root@w1'}}"], "hosts.w1.libvirt", "must have the form"),
        (
            ["hosts: {w1: {libvirt: 'qemu+ssh://root@w1'}}"],
            "hosts.w1.libvirt",
            "must have the form",
        ),
        (
            ["hosts:", "  w1:", "    devices:", *TWICE],
            "hosts.w1.devices",
            "function 0000:21:00.0 is given twice",
        ),
        (["state_dir: ''"], "state_dir", "names no file"),
        (["guest_access:", "  ssh_key: ''"], "guest_access.ssh_key", "names no file"),
        (["hosts: {w1: hello}"], "hosts.w1", "must be a mapping of fields"),
        (["hosts: {w1: }"], "hosts.w1", "must be a mapping of fields"),
    ],
)
def test_what_is_not_there_is_refused_where_it_is_named(
    tmp_path: Path, lines: list[str], field: str, said: str
) -> None:
    with pytest.raises(InvalidSite) as refused:
        read(tmp_path, *lines)

    key = field.rpartition(".")[2]
    line = next(n for n, text in enumerate(lines, 2) if key in text)
    assert str(refused.value).startswith(f"{tmp_path}/site.yaml:{line}: {field}: ")
    assert said in str(refused.value)
    assert refused.value.field == field


def test_a_host_in_memory_is_one_of_the_site(tmp_path: Path) -> None:
    with pytest.raises(InvalidSite, match=r"fake\.hosts\.w2: no host 'w2'"):
        read(tmp_path, "hosts: {w1: {}}", "fake: {hosts: {w2: {gpus: 1}}}")


def test_all_names_that_are_wrong_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidSite) as refused:
        read(tmp_path, "drivers:", "  VM: fakee", "  Storge: fake", "guest: nonee")

    assert len(str(refused.value).splitlines()) >= 2


def test_a_site_that_is_made_in_python_is_refused_alike() -> None:
    for values in ({"drivers": {"Storge": "fake"}}, {"guest": "nonee"}):
        with pytest.raises(ValidationError):
            Site.model_validate({"site": "TEST", **values})


def test_each_type_can_be_named() -> None:
    named = dict.fromkeys(driven_types(), "fake") | {"GPU_A30": "fake", "FPGA_X1": "fake"}

    assert Site(site="TEST", drivers=named, guest="fake").drivers == named


@pytest.mark.parametrize(
    "uri",
    [
        "qemu:///system",
        "qemu:///session",
        "qemu+ssh://root@w1:22/system?keyfile=/root/.ssh/id_ed25519",
        "qemu+tls://[2001:db8::1]/system",
        "qemu+unix:///system?socket=/run/libvirt/libvirt-sock",
    ],
)
def test_a_uri_of_libvirts_qemu_is_taken(uri: str) -> None:
    assert Host(libvirt=uri).libvirt == uri


def test_a_type_of_another_package_can_be_named(packages: Packages) -> None:
    packages.install("acme-handlers", handlers={"Toaster": "acme:Toaster"})
    packages.write("site.yaml", "{site: TEST, drivers: {VM: fake, Toaster: acme}, guest: fake}")

    assert packages.run("list").returncode == 0


def test_each_command_says_the_same(packages: Packages) -> None:
    packages.write("site.yaml", "site: TEST\ndrivers: {VM: fake}\nguest: nonee")
    packages.write("vm.yaml", VM)

    for argv in (["list"], ["create", "vm.yaml"], ["doctor"], ["history"], ["devices"]):
        done = packages.run(*argv)
        assert "site.yaml:3: guest: no guest driver 'nonee'" in done.stdout + done.stderr
