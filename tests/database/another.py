"""Another process of a site: ``python -m tests.database.another SITE WHAT``, SITE as JSON.

::

    hold      hold the lock of sliver s-1; for each line that comes, tell whether it is still held
    create    create the sliver vm-1, and print the outcome as JSON
"""

import sys

from fabric_direct.calls.fence import refuse_lost
from fabric_direct.errors import LockLost
from fabric_direct.model import Operation
from fabric_direct.operations.progress import Progress
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.journal import Journal
from fabric_direct.state.site_store import store_of
from fabric_direct.state.store import sliver_lock
from tests.database.slivers import vm


def say(words: object) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def hold(site: Site) -> None:
    """Hold a lock."""
    store = store_of(site)
    with store.exclusive(sliver_lock("s-1"), "sliver s-1", timeout=60):
        for _ in sys.stdin:
            try:
                refuse_lost(60)
                Journal(store).begin(Operation.CREATE, {"id": "s-1", "type": "VM"})
                say("held")
            except LockLost as error:
                say(error)


def create(site: Site) -> None:
    """Create a sliver; print each step that begins or ends."""

    def told(progress: Progress) -> None:
        say(f"{progress.step} {progress.status or 'begins'}")

    with HandlerProcessor(site, on_progress=told) as processor:
        say(processor.create(vm()).result().model_dump_json())


if __name__ == "__main__":
    {"hold": hold, "create": create}[sys.argv[2]](Site.model_validate_json(sys.argv[1]))
