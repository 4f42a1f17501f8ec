"""The local machine as a worker: the agent's functions are called in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netns import listnetns

from fabric_direct.calls.deadline import call_within
from fabric_direct.drivers.hosts.agent import frames
from fabric_direct.drivers.hosts.agent.serve import reply
from fabric_direct.drivers.hosts.functions import HostFunctions
from fabric_direct.errors import NotFound


class LocalHost(HostFunctions):
    """A :class:`~fabric_direct.drivers.contract.HostDriver` for the machine that it runs on."""

    def __init__(self, host: str = "this machine") -> None:
        super().__init__(host)

    def _ask(self, function: str, arguments: dict[str, Any], timeout: float) -> dict[str, Any]:
        # Serialized as for a remote worker, so that what works here works there.
        request = frames.pack({"id": 0, "function": function, "arguments": arguments})
        found: dict[str, Any]
        found = call_within(timeout, f"{function} ({self._host})", _answered, request)
        return found

    @contextmanager
    def netlink(self, netns: str | None = None) -> Iterator[Any]:
        """Return a pyroute2 ``IPRoute`` on this machine's kernel, for one thread and one ``with`` block.

        :raises NotFound: if there is no such network namespace. It is never created.
        """
        if netns is not None and netns not in listnetns():
            raise NotFound(f"there is no namespace {netns}", where=self._host)
        # Without flags=0 pyroute2 makes a namespace that is missing.
        with IPRoute(netns=netns, flags=0) as ip:
            yield ip


def _answered(request: bytes) -> Any:
    return frames.receive(BytesIO(reply(frames.receive(BytesIO(request).read))).read)
