"""What the functional tests share: a site on this machine's libvirt, and what slivers could leave."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import libvirt
import pytest

from fabric_direct.drivers.libvirt.connection.connections import Ignoring, connect
from fabric_direct.drivers.libvirt.storage.pool import GIB, OwnPool
from fabric_direct.errors import Unreachable
from fabric_direct.site.config import ImageSettings, Site
from tests.absent import absent
from tests.functional.apart import NUMBER, TAG, subnet
from tests.limits import PATIENT

URI = "qemu:///system"
IMAGE = Path("/var/lib/fabric-direct/images/fabric-guest.qcow2")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, whatever the order: no process is left with it at the end."""
    items.sort(key=lambda item: "functional/test_life" not in item.nodeid)


@pytest.fixture(scope="session")
def connection() -> libvirt.virConnect:
    """This machine's libvirt, or the reason why there is none."""
    try:
        return connect(URI)
    except Unreachable as error:
        absent(f"no libvirt here: {error}")


@pytest.fixture(scope="session")
def guest_image() -> Path:
    """The tiny guest's image, or the command that builds it."""
    if not IMAGE.exists():
        absent(f"no {IMAGE}: labs/local/lab image")
    return IMAGE


@pytest.fixture(scope="session")
def room(connection: libvirt.virConnect) -> Iterator[Path]:
    """A directory that QEMU's user can reach, as pytest's own are not; libvirt's pools go with it."""
    directory = Path(tempfile.mkdtemp(prefix="fdtest-", dir="/var/tmp"))
    directory.chmod(0o711)
    yield directory
    for pool in connection.listAllStoragePools():
        with Ignoring(libvirt.VIR_ERR_NO_STORAGE_POOL):  # another process's went meanwhile
            path = ElementTree.fromstring(pool.XMLDesc()).findtext("target/path", "")
            if Path(path).is_relative_to(directory):
                pool.destroy()
                pool.undefine()
    shutil.rmtree(directory)


def with_empty_image(site: Site) -> Site:
    """The same site with the image ``empty``, which boots nothing."""
    store = OwnPool.of(site, "localhost")
    store.create("empty.qcow2", GIB // 2)
    images = {"empty": ImageSettings(path=Path(store.file("empty.qcow2")))}
    return site.model_copy(update={"images": images})


@pytest.fixture(scope="session")
def site(room: Path, guest_image: Path) -> Site:
    """A site with two networks of its own on this machine; tests leave nothing in it.

    libvirt makes no firewall rules for them: those take half a second at each NIC.
    """
    return Site.model_validate(
        {
            "site": TAG,
            "state_dir": str(room / "state"),
            "volume_pool": str(room / "volumes"),
            "images": {"tiny": {"path": str(guest_image)}},
            "networks": {
                "red": {
                    "strategy": "flat_dhcp",
                    "subnet": f"{subnet(211)}.0/24",
                    "subnet6": f"fd11:{NUMBER + 1:x}::/64",
                    "forward": "open",
                },
                "blue": {
                    "strategy": "flat_dhcp",
                    "subnet": f"{subnet(212)}.0/24",
                    "forward": "open",
                },
            },
            "limits": PATIENT,
        }
    )


@pytest.fixture(scope="session")
def unattended(site: Site, room: Path) -> Site:
    """The same site, where nobody looks into guests: nothing boots in them and takes processor time."""
    blank = room / "blank.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", blank, "16M"], check=True)
    images = {"tiny": ImageSettings(path=blank)}
    return site.model_copy(update={"guest": "none", "images": images})


@pytest.fixture(scope="session")
def things(connection: libvirt.virConnect, site: Site, room: Path) -> Callable[[], set[str]]:
    """Name every domain, network, lease, disk and journal entry of the site's slivers."""
    ours = (f"{TAG}-", f"fd-{site.site}-")

    def things() -> set[str]:
        made = (*connection.listAllDomains(), *connection.listAllNetworks())
        names = {each.name() for each in made if each.name().startswith(ours)}
        disks = {str(f) for f in Path(str(site.volume_pool)).glob("*")}
        under_way = {
            str(f) for name in ("journal", "locks") for f in (site.state_dir / name).glob("*")
        }
        return names | disks | under_way

    return things
