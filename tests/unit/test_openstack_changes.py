"""Which servers Nova has changed: asked for what is newer than what was seen."""

from typing import Any

import pytest

from fabric_direct.drivers.contract.changes import Change, Hearing
from fabric_direct.drivers.openstack.servers import changes
from fabric_direct.errors import FabricDirectError
from tests.unit.openstack_api import OpenStackApi
from tests.unit.test_openstack_compute import Nova, clouds_folder, nova, server

__all__ = ["clouds_folder", "nova"]

FIRST, SECOND = "2026-11-21T10:30:58Z", "2026-11-21T10:40:00Z"


class Rounds(Hearing):
    """A hearing that ends after some rounds, without a pause."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._left = rounds

    def wait(self, seconds: float | None = None) -> bool:
        assert seconds == changes.PAUSE
        self._left -= 1
        return self._left < 0


def told(nova: Nova, *lists: list[dict[str, Any]]) -> list[Change]:
    """Return what is told of these answers, the first of which is of all servers."""
    nova.lists(*lists)
    heard: list[Change] = []
    nova.compute().listen(heard.append, Rounds(len(lists) - 1))
    return heard


def test_a_server_that_has_changed_is_told_of_once(nova: Nova) -> None:
    changed = server("SHUTOFF", updated=SECOND)
    heard = told(nova, [server(updated=FIRST)], [changed], [changed])

    assert heard == [Change("unknown"), Change("server", (changed["id"],), "Nova says SHUTOFF")]


def test_only_what_is_newer_than_what_was_seen_is_asked_for(nova: Nova) -> None:
    told(nova, [server(updated=FIRST)], [server(updated=SECOND)], [])

    asked = [sent for *_, path, sent in nova.calls if path == "/servers/detail"]
    assert [sent.get("changes-since") for sent in asked] == [None, FIRST, SECOND]


def test_a_server_that_nova_has_a_task_for_is_told_of_when_that_is_over(nova: Nova) -> None:
    busy = server(updated=SECOND, task="rebooting_hard")
    heard = told(nova, [server(updated=FIRST)], [busy], [server(updated=SECOND)])

    assert [change.what for change in heard] == ["", "Nova says ACTIVE"]


def test_a_site_without_servers_asks_for_all_until_there_is_one(nova: Nova) -> None:
    heard = told(nova, [], [], [server(updated=FIRST)])

    assert [change.kind for change in heard] == ["unknown", "server"]


def test_a_cloud_that_does_not_answer_is_not_heard(api: OpenStackApi, nova: Nova) -> None:
    nova.refuses("GET", "/servers/detail", 403, "no")

    with pytest.raises(FabricDirectError):
        nova.compute().listen(print, Rounds(1))
