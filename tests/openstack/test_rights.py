"""What the doctor says of the rights of users whom the services know by their roles."""

from collections.abc import Callable
from typing import Any

import pytest
from openstack.connection import Connection

from fabric_direct.doctor.cloud_rights import ASKING, RIGHTS, check_rights
from fabric_direct.doctor.diagnosis import Verdict
from fabric_direct.drivers.openstack.client.session import cloud as connected
from fabric_direct.site.config import OpenStackSettings, Site
from tests.openstack.conftest import cloud_settings
from tests.openstack.target import TARGET

MakeSite = Callable[..., Site]

OF_ADMINISTRATORS = {
    "choose the worker of a server",
    "list the workers",
    "know the size of a worker",
    "know what is free on a worker",
    "make flavors",
    "make provider networks",
    "choose the MAC or address of a NIC on another project's network",
}
OF_MANAGERS = {"limit the bandwidth of a vNIC"}
# Beside ports: Neutron lets a reader make them on networks that are shared, as the lab's are.
OF_MEMBERS = {"make servers", "make floating IPs", "make volumes"}


@pytest.fixture
def roles_of_today(cloud: Connection) -> None:
    """Skip where there are no such accounts, or policies that know fewer roles."""
    if not TARGET.is_lab:
        pytest.skip("accounts of these roles are the lab's")
    newest = cloud.compute.get_endpoint_data().max_microversion
    if newest < (2, 96):
        pytest.skip("before 2024.1, Neutron's own policies know administrators and owners alone")


def lacking(settings: dict[str, Any], site: Site) -> set[str]:
    """Return what the doctor says that a user may not do."""
    connection = connected(OpenStackSettings.model_validate(settings))
    said = {service: check_rights(connection, site, service) for service in RIGHTS}
    every = {right.to: said[service].found for service, them in RIGHTS.items() for right in them}
    return {to for to, found in every.items() if to in found}


def test_an_administrator_may_do_all(make_site: MakeSite) -> None:
    assert lacking(cloud_settings(TARGET.cloud), make_site()) == set()


def test_a_member_lacks_the_rights_of_administrators_and_managers(
    make_site: MakeSite, member: dict[str, Any]
) -> None:
    assert lacking(member, make_site()) == OF_ADMINISTRATORS | OF_MANAGERS


@pytest.mark.usefixtures("roles_of_today")
@pytest.mark.parametrize(
    ("role", "lacks"),
    [
        ("manager", OF_ADMINISTRATORS),
        ("reader", OF_ADMINISTRATORS | OF_MANAGERS | OF_MEMBERS),
    ],
)
def test_other_roles_lack_what_is_not_theirs(
    role: str, lacks: set[str], make_site: MakeSite
) -> None:
    assert lacking(cloud_settings(f"lab-{role}"), make_site()) == lacks


@pytest.mark.usefixtures("roles_of_today")
def test_a_reader_is_told_that_no_sliver_can_be_made(make_site: MakeSite) -> None:
    reader = connected(OpenStackSettings.model_validate(cloud_settings("lab-reader")))

    found = check_rights(reader, make_site(), "Nova")

    assert found.verdict is Verdict.FAIL
    assert "os_compute_api:servers:create" in found.remedy


def test_asking_makes_nothing(cloud: Connection, make_site: MakeSite) -> None:
    lacking(cloud_settings(TARGET.cloud), make_site())

    everything = (
        *cloud.compute.servers(details=True, all_projects=True),
        *cloud.compute.flavors(),
        *cloud.network.ports(),
        *cloud.network.networks(),
        *cloud.network.ips(),
        *cloud.block_storage.volumes(all_projects=True),
    )
    assert not [each for each in everything if ASKING in (each.name, each.description)]
