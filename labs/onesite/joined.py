"""joined.py HOST: return once a compute host is up and known, and OVN works there."""

import sys
import time
from datetime import UTC, datetime

import openstack
from openstack.exceptions import SDKException

host, end = sys.argv[1], time.monotonic() + 600
began = datetime.now(UTC).replace(tzinfo=None)  # what is older was said by an earlier run
cloud = openstack.connect()


def joined() -> bool:
    """Tell whether all have reported themselves; Nova would ask the host itself for details."""
    services = [s for s in cloud.compute.services(host=host, binary="nova-compute") if s.updated_at]
    agents = cloud.network.agents(host=host)
    return (
        any(s.state == "up" and datetime.fromisoformat(s.updated_at) > began for s in services)
        and any(agent.is_alive for agent in agents)
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
