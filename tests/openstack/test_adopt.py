"""Slivers by fabric_am's own naming, made by Nova, Neutron and Cinder: adopted, changed, deleted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from openstack.connection import Connection

from fabric_direct.handlers.vm.adoption_draft import Draft
from fabric_direct.model import NodeSliver, State
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.openstack.conftest import Things, nic, ours
from tests.openstack.target import TARGET
from tests.outcomes import done

PROJECT = ours("project")


@dataclass
class Old:
    """What fabric_am made of a sliver."""

    reservation: str
    server: Any
    port: Any
    floating: Any


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site(guest="none", actor={"management_network": TARGET.network})


@pytest.fixture
def old(cloud: Connection) -> Iterator[tuple[Old, ...]]:
    """Three servers without a stamp, one of them with a volume of its user's."""
    volume = cloud.block_storage.create_volume(name=f"{PROJECT}-data", size=1)
    servers = [_begin(cloud, f"{uuid4()}-node{n}") for n in range(3)]
    try:
        cloud.block_storage.wait_for_status(volume, "available", wait=120)
        made = tuple(_finish(cloud, server) for server in servers)
        cloud.compute.create_volume_attachment(made[0].server.id, volume_id=volume.id)
        cloud.block_storage.wait_for_status(volume, "in-use", wait=120)
        yield made
    finally:
        _remove(cloud, servers, volume)


def _begin(cloud: Connection, name: str) -> Any:
    return cloud.compute.create_server(
        name=name,
        image_id=cloud.image.find_image(TARGET.image, ignore_missing=False).id,
        flavor_id=cloud.compute.find_flavor(TARGET.flavor, ignore_missing=False).id,
        networks=[{"uuid": cloud.network.find_network(TARGET.network, ignore_missing=False).id}],
        metadata={"hostname": name[37:]},
    )


def _finish(cloud: Connection, server: Any) -> Old:
    server = cloud.compute.wait_for_server(server, wait=300)
    (port,) = cloud.network.ports(device_id=server.id)
    public = cloud.network.find_network(TARGET.external_network, ignore_missing=False)
    floating = cloud.network.create_ip(floating_network_id=public.id, port_id=port.id)
    return Old(server.name[:36], server, port, floating)


def _remove(cloud: Connection, servers: list[Any], volume: Any) -> None:
    ports = [p.id for s in servers for p in cloud.network.ports(device_id=s.id)]
    for ip in [ip for ip in cloud.network.ips() if ip.port_id in ports]:
        cloud.network.delete_ip(ip)
    for server in servers:
        cloud.compute.delete_server(server, ignore_missing=True)
    for server in servers:
        cloud.compute.wait_for_delete(server, wait=120)
    cloud.block_storage.wait_for_status(volume, "available", wait=120)
    cloud.block_storage.delete_volume(volume)


def _drafts(processor: HandlerProcessor, old: tuple[Old, ...]) -> dict[str, Draft]:
    found = [d for each in old for d in processor.drafts(f"{each.reservation}-")]
    return {draft.server.name[:36]: draft for draft in found}


def test_three_slivers_of_fabric_am_are_adopted_changed_and_deleted_without_leaving_anything(
    cloud: Connection, processor: HandlerProcessor, old: tuple[Old, ...], things: Things
) -> None:
    drafts = _drafts(processor, old)
    asked = [drafts[each.reservation].adoption for each in old]
    assert [draft.error for draft in drafts.values()] == [None] * 3
    wanted = [each for each in asked if each]

    for future in [processor.adopt(each, plan=True) for each in wanted]:
        done(future.result())
    assert things() == set()
    for future in [processor.adopt(each) for each in wanted]:
        observed = done(future.result()).observed
        assert observed
        assert (observed.state, observed.differences) == (State.RUNNING, ())
    for each in old:
        _has_only_a_stamp_more(cloud, each)
    assert {s.sliver for s in processor.slivers()} == {each.reservation for each in old}

    twice = [done(processor.adopt(each).result()) for each in wanted]
    assert {s.status.value for each in twice for s in each.steps} == {"already so"}

    first = wanted[0].sliver
    done(processor.modify(_with_a_second_nic(first)).result())
    done(processor.modify(first).result())

    for future in [processor.delete(each.sliver.ref()) for each in wanted]:
        done(future.result())
    assert things() == set()
    for each in old:
        assert cloud.compute.find_server(each.server.id) is None
        assert cloud.network.find_port(each.port.id) is None
        assert cloud.network.find_ip(each.floating.id) is None
    volume = cloud.block_storage.find_volume(f"{PROJECT}-data", ignore_missing=False)
    assert cloud.block_storage.get_volume(volume.id).status == "available"


def _has_only_a_stamp_more(cloud: Connection, old: Old) -> None:
    """See that nothing else of a server was changed: Nova says when it did so."""
    server = cloud.compute.get_server(old.server.id)
    assert server.metadata["hostname"] == old.server.metadata["hostname"]
    assert (server.name, server.status, server.launched_at) == (
        old.server.name,
        "ACTIVE",
        old.server.launched_at,
    )
    port = cloud.network.get_port(old.port.id)
    kept = ("name", "mac_address", "fixed_ips", "security_group_ids", "device_id")
    assert [getattr(port, key) for key in kept] == [getattr(old.port, key) for key in kept]


def _with_a_second_nic(sliver: NodeSliver) -> NodeSliver:
    data = sliver.model_dump()
    data["components"] = [*data["components"], nic("second", TARGET.network)]
    return NodeSliver.model_validate(data)
