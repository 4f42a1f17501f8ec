"""A vNIC's bandwidth as the worker's kernel has it: Debian's, which limits both directions."""

from functools import partial
from typing import Any

import pytest
from openstack.connection import Connection

from fabric_direct.calls.deadline import wait_until
from fabric_direct.model import NodeSliver
from fabric_direct.processor import HandlerProcessor
from tests.openstack.conftest import in_effect
from tests.openstack.target import TARGET
from tests.outcomes import done
from tests.site.conftest import sliver
from tests.worker.conftest import Worker

pytestmark = pytest.mark.usefixtures("nothing_left")


def limited(bandwidth: int | None) -> NodeSliver:
    eth0: dict[str, Any] = {"type": "vNIC", "id": "eth0", "network": TARGET.network}
    return sliver(components=[eth0 | {"interface": {"bandwidth": bandwidth}}])


def test_what_neutron_says_is_what_the_kernel_does(
    processor: HandlerProcessor, cloud: Connection, worker: Worker
) -> None:
    done(processor.create(limited(20)).result())
    (server,) = processor.slivers()
    (port,) = cloud.network.ports(device_id=server.instance)

    def so(rates: tuple[str, str]) -> bool:
        return in_effect(worker.run, f"tap{port.id[:11]}") == rates

    for bandwidth, rate in ((20, "20Mbit"), (50, "50Mbit"), (None, "")):
        done(processor.modify(limited(bandwidth)).result())
        what = f"the kernel to limit it to {bandwidth} Mbit/s"
        wait_until(what, partial(so, (rate, rate)), timeout=60)
        observed = done(processor.probe(limited(bandwidth)).result()).observed
        assert observed
        assert observed.interfaces[0].bandwidth == bandwidth
        assert observed.differences == ()
    done(processor.delete(limited(None).ref()).result())
