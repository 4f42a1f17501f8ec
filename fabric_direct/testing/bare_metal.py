"""Contract tests for bare-metal nodes."""

from collections.abc import Iterator

import pytest

from fabric_direct.drivers.contract import BareMetalDriver, NodeAccess, NodeCondition
from fabric_direct.errors import InvalidSliver, NotFound
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.testing.slivers import Slivers

_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN someone"


class BareMetalContract(Slivers):
    """The suite for a :class:`~fabric_direct.drivers.contract.BareMetalDriver`.

    The fixture ``free`` is the name of a node that is free, and ``image`` that of an image which it can
    be deployed with; the node is free again afterwards.
    """

    @pytest.fixture
    def wanted(self, sliver: str, free: str, image: str) -> BareMetalSliver:
        """Return a sliver that names the free node."""
        return BareMetalSliver(id=sliver, name="node", node=free, image=image)

    @pytest.fixture
    def deployed(
        self, driver: BareMetalDriver, wanted: BareMetalSliver
    ) -> Iterator[BareMetalSliver]:
        """Return a sliver that has its node; it is taken away afterwards."""
        driver.apply(wanted)
        yield wanted
        driver.remove(wanted.id)

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

    def test_a_rebuild_deploys_the_same_node_as_it_is_told(
        self, driver: BareMetalDriver, deployed: BareMetalSliver
    ) -> None:
        before, asked = driver.find(deployed.id), list[str]()
        wanted = deployed.model_copy(update={"ssh_keys": (_KEY,), "boot_script": "#!/bin/sh\n"})

        driver.rebuild(wanted, NodeAccess(host_key=lambda: asked.append("key")))

        after = driver.find(deployed.id)
        assert before
        assert after
        assert (after.source, after.host) == (before.source, before.host)
        assert driver.stamp(deployed.id) == wanted.stamp()
        assert driver.differences(wanted) == ()
        assert driver.power(deployed.id) == "on"
        assert asked == ["key"]

    def test_a_rebuild_of_what_is_on_no_node_is_not_begun(
        self, driver: BareMetalDriver, wanted: BareMetalSliver
    ) -> None:
        with pytest.raises(NotFound):
            driver.rebuild(wanted)

        assert driver.leftovers(wanted.id) == ()

    def test_a_rebuild_changes_nothing_that_is_of_the_node(
        self, driver: BareMetalDriver, deployed: BareMetalSliver
    ) -> None:
        with pytest.raises(InvalidSliver) as refused:
            driver.rebuild(deployed.model_copy(update={"resource_class": "another"}))

        assert refused.value.field == "resource_class"
        assert driver.stamp(deployed.id) == deployed.stamp()

    def test_only_a_rebuild_changes_what_a_deployment_sets(
        self, driver: BareMetalDriver, deployed: BareMetalSliver
    ) -> None:
        wanted = deployed.model_copy(update={"ssh_keys": (_KEY,), "rebuild": True})

        driver.check(wanted)
        with pytest.raises(InvalidSliver) as refused:
            driver.apply(wanted)

        assert refused.value.field == "ssh_keys"
        assert driver.stamp(deployed.id) == deployed.stamp()
