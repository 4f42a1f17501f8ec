"""Requests to a controller, whose time ends with the operation."""

import socket
from collections.abc import Iterator

import pytest

from fabric_direct.drivers import http_api
from fabric_direct.drivers.http_api import Access, HttpApi
from fabric_direct.errors import TimedOut


@pytest.fixture
def silent() -> Iterator[str]:
    """Where something listens that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_time_that_ends_while_a_request_is_prepared_is_no_broken_connection(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([1.0])
    monkeypatch.setattr(http_api, "time_left", lambda _: next(left, 0.0))
    api = HttpApi(Access("the controller", "services.nso", silent, ca_file=None), 60.0)

    with pytest.raises(TimedOut):
        api.exchange("GET things", "GET", "/things", headers={})
