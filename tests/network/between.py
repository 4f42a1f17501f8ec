"""Do something between two calls that change a switch. As a program: end itself there, without warning.

::

    python -m tests.network.between SITE SLIVER OPERATION NUMBER

ends by SIGKILL before the changing call NUMBER, and writes ``done`` if there is none.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fabric_direct.drivers.gateways.namespaces import Namespaces
from fabric_direct.drivers.ovs.database import SwitchDatabase
from fabric_direct.drivers.ovs.switch import OvsSwitch
from fabric_direct.model.services import AnyService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site


@contextmanager
def at_changes(before: Callable[[int], None]) -> Iterator[None]:
    """Call something before each call that changes a switch, with the number of these so far."""
    made: list[None] = []

    def counting(function: Callable[..., Any], changes: Callable[..., bool]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kw: Any) -> Any:
            if changes(*args):
                before(len(made))
                made.append(None)
            return function(self, *args, **kw)

        return call

    commit = counting(SwitchDatabase._committed, lambda *_: True)
    flow = counting(OvsSwitch._flow, lambda *_: True)
    run = counting(Namespaces._run, _changes_host)
    with (
        patch.object(SwitchDatabase, "_committed", commit),
        patch.object(OvsSwitch, "_flow", flow),
        patch.object(Namespaces, "_run", run),
    ):
        yield


def _changes_host(argv: tuple[str, ...], stdin: str = "", *_: Any) -> bool:
    """Return whether a command is a batch, or one of those that change something."""
    changing = {"-qw", "install", "rm", "/usr/lib/frr/zebra", "/usr/lib/frr/bgpd"}
    return bool(stdin or changing & {*argv} or any("pkill" in word for word in argv))


def main(site: str, sliver: str, operation: str, number: str) -> None:
    def die(made: int) -> None:
        if made == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

    wanted = AnyService.model_validate_json(Path(sliver).read_text()).root
    there = Site.model_validate_json(Path(site).read_text())
    with at_changes(die), HandlerProcessor(there) as processor:
        outcome = getattr(processor, operation)(wanted).result()
    sys.stdout.write(outcome.status)


if __name__ == "__main__":
    main(*sys.argv[1:])
