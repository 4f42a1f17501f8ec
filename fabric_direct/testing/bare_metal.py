"""Contract tests for bare-metal nodes."""

from fabric_direct.drivers.contract import BareMetalDriver, NodeCondition
from fabric_direct.testing.slivers import Slivers


class BareMetalContract(Slivers):
    """The suite for a :class:`~fabric_direct.drivers.contract.BareMetalDriver`.

    The fixture ``free`` is the name of a node that is free.
    """

    def test_nodes_are_listed_by_name_each_once(self, driver: BareMetalDriver) -> None:
        nodes = driver.nodes()

        assert [node.name for node in nodes] == sorted(node.name for node in nodes)
        assert len({node.id for node in nodes}) == len(nodes)

    def test_traits_and_macs_are_sorted_and_said_once(self, driver: BareMetalDriver) -> None:
        for node in driver.nodes():
            macs = [port.mac for port in node.ports]
            assert list(node.traits) == sorted({*node.traits})
            assert macs == sorted({*macs})

    def test_a_free_node_is_nobodys(self, driver: BareMetalDriver, free: str) -> None:
        node = {node.name: node for node in driver.nodes()}[free]

        assert node.condition is NodeCondition.FREE
        assert (node.tenant, node.sliver) == (None, None)

    def test_what_it_offers_is_told(self, driver: BareMetalDriver) -> None:
        assert all(driver.examine())
