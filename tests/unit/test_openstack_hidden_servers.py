"""All servers of a project, by id and name: what a list with a filter may leave out."""

from typing import Any

import pytest

from fabric_direct.drivers.openstack.client.answers import ListedServer
from fabric_direct.drivers.openstack.client.errors import translated
from fabric_direct.drivers.openstack.client.hidden_servers import every_server, unknown_servers
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.errors import DriverError
from tests.unit.openstack_api import OpenStackApi


def read(api: OpenStackApi) -> list[ListedServer]:
    with translated("read the servers", "cloud test"):
        return every_server(cloud(api.settings))


def test_are_read_page_by_page(api: OpenStackApi) -> None:
    api.every = [{"id": f"i{n}", "name": f"s{n}-node", "links": []} for n in range(5)]
    api.max_limit = 2

    found = read(api)

    assert [(server.id, server.name) for server in found] == [
        (f"i{n}", f"s{n}-node") for n in range(5)
    ]
    assert api.unfiltered == 3


def test_there_may_be_none(api: OpenStackApi) -> None:
    assert read(api) == []


@pytest.mark.parametrize("servers", [[{"id": "i1"}], []], ids=["the same again", "empty"])
def test_pages_that_do_not_end_are_an_error(
    api: OpenStackApi, monkeypatch: pytest.MonkeyPatch, servers: list[dict[str, Any]]
) -> None:
    """What would follow is not known: an absence from what was read says nothing."""
    following = {"rel": "next", "href": "/servers?marker=i1"}
    monkeypatch.setattr(api, "page", lambda _: {"servers": servers, "servers_links": [following]})

    with pytest.raises(DriverError, match="the cloud's answer is invalid: list of servers"):
        read(api)


def test_those_of_a_cell_that_does_not_answer_are_told_apart(api: OpenStackApi) -> None:
    api.every = [{"id": "i1", "name": "s-node"}, {"id": "i2", "status": "UNKNOWN"}]

    assert unknown_servers(read(api)) == {"i2"}


@pytest.mark.parametrize(
    ("servers", "field"),
    [
        ([{"name": "s-node"}], "servers.0.id"),
        ([{"id": "i1", "name": 5}], "servers.0.name"),
        ([{"id": "i1"}, {"id": "i2", "status": []}], "servers.1.status"),
    ],
)
def test_of_another_form_are_an_error_that_names_the_field(
    api: OpenStackApi, servers: list[dict[str, Any]], field: str
) -> None:
    api.every = servers

    with pytest.raises(
        DriverError, match="the cloud's answer is invalid: list of servers"
    ) as error:
        read(api)

    assert field in error.value.why
