"""Services that share a port, changed at once."""

from concurrent.futures import ThreadPoolExecutor

from fabric_direct.drivers.ovs.service import OvsService
from fabric_direct.site.config import Site
from tests.services.slivers import interface, service


def test_services_that_come_and_go_on_one_port_do_not_disturb_each_other(
    site: Site, driver: OvsService
) -> None:
    """The port's bridge goes with its last service, while another one's patch may be put into it."""

    def live(number: int) -> None:
        wanted = service(interface("i1", 100 + number), sliver=f"net-{number}")
        mine = OvsService(site, "localhost")
        for _ in range(8):
            mine.apply(wanted)
            assert mine.differences(wanted) == ()
            mine.remove(wanted.id)

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(live, range(4))] == [None] * 4
    assert driver.stamped() == ()
