"""A vNIC's bandwidth as the worker's switch has it: the kernel's, by OVN's meters."""

from functools import partial
from typing import Any

import pytest

from fabric_direct.calls.deadline import wait_until
from fabric_direct.model import NodeSliver
from fabric_direct.processor import HandlerProcessor
from tests.openstack.conftest import metered
from tests.openstack.target import TARGET
from tests.outcomes import done
from tests.site.conftest import sliver
from tests.worker.conftest import Worker

pytestmark = pytest.mark.usefixtures("nothing_left")


def limited(bandwidth: int | None) -> NodeSliver:
    eth0: dict[str, Any] = {"type": "vNIC", "id": "eth0", "network": TARGET.network}
    return sliver(components=[eth0 | {"interface": {"bandwidth": bandwidth}}])


def test_what_neutron_says_is_what_the_switch_does(
    processor: HandlerProcessor, worker: Worker
) -> None:
    def run(*argv: str) -> str:
        return worker.run("chroot", "/srv/cloud", *argv)

    def so(rates: list[int]) -> bool:
        return metered(run) == rates

    done(processor.create(limited(20)).result())
    for bandwidth, rates in ((20, [20_000] * 2), (50, [50_000] * 2), (None, [])):
        done(processor.modify(limited(bandwidth)).result())
        wait_until(f"OVN to limit it to {bandwidth} Mbit/s", partial(so, rates), timeout=60)
        observed = done(processor.probe(limited(bandwidth)).result()).observed
        assert observed
        assert observed.interfaces[0].bandwidth == bandwidth
        assert observed.differences == ()
    done(processor.delete(limited(None).ref()).result())
