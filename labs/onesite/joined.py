"""joined.py HOST: return once a compute host is up and known, and has its bridge agent."""

import sys
import time
from datetime import UTC, datetime

import openstack
from openstack.exceptions import SDKException

host, end = sys.argv[1], time.monotonic() + 600
began = datetime.now(UTC).replace(tzinfo=None)  # what is older was said by an earlier run
cloud = openstack.connect()


def since(when: str | None) -> bool:
    """Tell whether a report came after the start."""
    return when is not None and datetime.fromisoformat(when.replace(" ", "T").rstrip("Z")) > began


def joined() -> bool:
    """Tell whether all have reported themselves; Nova would ask the host itself for details."""
    services = cloud.compute.services(host=host, binary="nova-compute")
    agents = cloud.network.agents(host=host)
    return (
        any(s.state == "up" and since(s.updated_at) for s in services)
        and any(a.is_alive and since(a.last_heartbeat_at) for a in agents)
        and any(each.name == host for each in cloud.compute.hypervisors())
    )


problem: object = "it did not report itself"
while time.monotonic() < end:
    try:
        if joined():
            sys.exit(0)
    except SDKException as error:
        problem = error
    time.sleep(1)
sys.exit(f"joined: {host} is not there: {problem}")
