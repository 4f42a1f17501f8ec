"""What cannot be served is refused by its field, or fails in the cloud's words; nothing is left."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from openstack.connection import Connection

from fabric_direct.model import Outcome, SliverRef, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.openstack.conftest import RED, WORKER, Things, cloud_settings, nic, ours, sliver
from tests.openstack.target import TARGET
from tests.outcomes import done

MakeSite = Callable[..., Site]


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    """A site that does not look into its guests."""
    return make_site(guest="none")


@pytest.fixture(autouse=True)
def nothing_left(processor: HandlerProcessor, things: Things) -> Iterator[None]:
    yield
    done(processor.delete(SliverRef(id=ours("bad"))).result())
    assert things() == set()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"image": "no-such-image"}, "image"),
        ({"flavor": "no-such-flavor"}, "flavor"),
        ({"flavor": None, "capacities": {"core": 64, "ram": 512, "disk": 1}}, "capacities"),
        ({"host": "no-such-worker"}, "host"),
        ({"components": [nic("eth0", "no-such-network")]}, "components[0].network"),
        (
            {"components": [nic("eth0", TARGET.network, ipv4="10.99.0.5/24")]},
            "components[0].interface.ipv4",
        ),
        (
            {"components": [nic("eth0", TARGET.network, vlan=10)]},
            "components[0].interface.vlan",
        ),
        (
            {"components": [{"type": "Storage", "id": "v", "volume": "none"}]},
            "components[0].volume",
        ),
        ({"components": [{"type": "GPU", "id": "g", "bdf": ["25:00.0"]}]}, "components[0]"),
    ],
)
def test_what_the_cloud_cannot_serve_is_refused_by_field(
    processor: HandlerProcessor, things: Things, values: dict[str, Any], field: str
) -> None:
    outcome = processor.create(sliver("bad", **values)).result()

    assert outcome.status is Status.REFUSED, outcome.error
    assert outcome.error
    assert outcome.error.field.startswith(field)
    assert things() == set()


def test_a_flavor_that_is_too_small_is_refused(
    processor: HandlerProcessor, cloud: Connection, things: Things
) -> None:
    with flavor(cloud, ram=128, vcpus=1, disk=1) as small:
        outcome = processor.create(sliver("bad", flavor=small)).result()

    assert outcome.status is Status.REFUSED, outcome.error
    assert outcome.error
    assert outcome.error.field.startswith("flavor")
    assert things() == set()


@contextmanager
def flavor(cloud: Connection, **size: int) -> Iterator[str]:
    """A flavor of the test's own, by its name: another one than that of the test before."""
    made = cloud.compute.create_flavor(name=ours(f"flavor-{secrets.token_hex(3)}"), **size)
    try:
        yield made.name
    finally:
        cloud.compute.delete_flavor(made)


@contextmanager
def quota(cloud: Connection, **values: int) -> Iterator[None]:
    """Other quotas of the project meanwhile."""
    project = cloud.current_project_id
    quotas = cloud.get_compute_quotas(project)
    before = {name: getattr(quotas, name) for name in values}
    cloud.set_compute_quotas(project, **values)
    try:
        yield
    finally:
        cloud.set_compute_quotas(project, **before)


@pytest.mark.alone
def test_a_quota_that_is_exceeded_is_told_and_nothing_is_left(
    processor: HandlerProcessor, cloud: Connection, things: Things
) -> None:
    with quota(cloud, instances=0):
        outcome = processor.create(sliver("bad")).result()

    failed(outcome, "QuotaExceeded", "uota")
    assert things() == set()


def failed(outcome: Outcome, kind: str, words: str) -> None:
    assert outcome.status is Status.FAILED, outcome.error
    assert outcome.error
    assert outcome.error.kind == kind
    assert words in outcome.error.message
    assert outcome.left == ()


@pytest.mark.alone
def test_a_worker_that_is_disabled_is_named_with_its_reason(
    processor: HandlerProcessor, cloud: Connection, things: Things
) -> None:
    services = cloud.compute.services(binary="nova-compute", host=WORKER)
    service = next(iter(services))
    cloud.compute.disable_service(service, WORKER, "nova-compute", disabled_reason="new disks")
    try:
        outcome = processor.create(sliver("bad")).result()
    finally:
        cloud.compute.enable_service(service, WORKER, "nova-compute")

    failed(outcome, "DriverError", "new disks")
    assert things() == set()


@pytest.mark.alone
def test_a_worker_that_is_full_fails_in_novas_words(
    processor: HandlerProcessor, cloud: Connection, things: Things
) -> None:
    ram = 1024  # GiB
    size = {"core": 2, "ram": ram, "disk": 1}
    with (
        quota(cloud, ram=-1),
        flavor(cloud, ram=ram * 1024, vcpus=2, disk=1) as huge,
    ):
        outcome = processor.create(sliver("bad", flavor=huge, capacities=size)).result()

    failed(outcome, "DriverError", "No valid host")
    assert things() == set()


@pytest.mark.share
def test_a_server_that_goes_to_error_is_removed_and_its_fault_told(
    processor: HandlerProcessor, cloud: Connection, things: Things
) -> None:
    image = cloud.create_image(
        ours("broken"),
        data=bytes(1 << 20),
        disk_format="raw",
        container_format="bare",
        wait=True,
        use_import=False,
        hw_machine_type="no-such-machine",
    )
    try:
        outcome = processor.create(sliver("bad", image=ours("broken"))).result()
    finally:
        cloud.delete_image(image.id)

    failed(outcome, "DriverError", "maximum number of retries")
    assert things() == set()


def test_a_server_of_its_name_that_is_not_ours_is_untouched(
    processor: HandlerProcessor, cloud: Connection, things: Things
) -> None:
    foreign = cloud.compute.create_server(
        name=ours("bad-node"),
        image_id=cloud.image.find_image(TARGET.image).id,
        flavor_id=cloud.compute.find_flavor(TARGET.flavor).id,
        networks="none",
    )
    try:
        cloud.compute.wait_for_server(foreign, interval=0.5)
        outcome = processor.create(sliver("bad")).result()
        there = cloud.compute.get_server(foreign.id)
    finally:
        cloud.compute.delete_server(foreign)
        cloud.compute.wait_for_delete(foreign, interval=0.5)

    failed(outcome, "NotOurs", ours("bad-node"))
    assert there.status == "ACTIVE"
    assert things() == set()


class TestAVolumeThatIsNotOurs:
    @pytest.fixture
    def volume(self, cloud: Connection) -> Iterator[Any]:
        volume = cloud.create_volume(1, name=ours("project-data"), wait=True)
        yield volume
        cloud.delete_volume(volume.id, wait=True)

    def test_is_attached_by_name_or_id_and_stays(
        self, processor: HandlerProcessor, cloud: Connection, volume: Any
    ) -> None:
        for name in (volume.name, volume.id):
            disk = {"type": "Storage", "id": "data", "volume": name}
            wanted = sliver("bad", components=[nic("eth0", TARGET.network, floating_ip=True), disk])
            observed = done(processor.create(wanted).result()).observed
            assert observed
            assert [v.source for v in observed.volumes] == [volume.id]
            done(processor.delete(wanted.ref()).result())

        assert cloud.get_volume(volume.id).status == "available"

    def test_in_use_elsewhere_is_not_taken(
        self, processor: HandlerProcessor, cloud: Connection, things: Things, volume: Any
    ) -> None:
        other = cloud.compute.create_server(
            name=ours("other"),
            image_id=cloud.image.find_image(TARGET.image).id,
            flavor_id=cloud.compute.find_flavor(TARGET.flavor).id,
            networks="none",
        )
        try:
            other = cloud.compute.wait_for_server(other, interval=0.5)
            cloud.attach_volume(other, volume, wait=True)
            disk = {"type": "Storage", "id": "data", "volume": volume.name}
            outcome = processor.create(sliver("bad", components=[disk])).result()
            still = cloud.get_volume(volume.id).attachments[0]["server_id"]
        finally:
            # (a guest that has not booted does not let a volume go)
            cloud.compute.delete_server(other)
            cloud.compute.wait_for_delete(other, interval=0.5)

        assert not outcome.ok
        assert outcome.left == ()
        assert still == other.id
        assert things() == set()


WRONG = "not-the-pass-word"


def with_a_wrong_password(cloud: Connection, tmp_path: Path) -> Path:
    """A clouds.yaml of the cloud with another password."""
    auth = cloud.config.auth
    if "password" not in auth:
        pytest.skip(f"{TARGET.cloud} in clouds.yaml has no password")
    keys = ("auth_type", "region_name", "cacert", "verify", "identity_api_version")
    entry = {key: cloud.config.config[key] for key in keys if cloud.config.config.get(key)}
    entry["auth"] = {**auth, "password": WRONG}
    path = tmp_path / "clouds.yaml"
    path.write_text(yaml.safe_dump({"clouds": {TARGET.cloud: entry}}))
    return path


def test_a_wrong_password_is_said_so_and_not_shown(
    make_site: MakeSite, cloud: Connection, tmp_path: Path
) -> None:
    clouds = with_a_wrong_password(cloud, tmp_path)
    settings = {**cloud_settings(TARGET.cloud), "clouds_file": str(clouds)}
    site = make_site(openstack=settings)

    with HandlerProcessor(site) as processor:
        outcome = processor.create(sliver("bad")).result()

    assert outcome.error
    assert outcome.error.kind == "Denied"
    assert WRONG not in outcome.model_dump_json()


class TestAMember:
    """Somebody without the rights of an administrator."""

    @pytest.fixture
    def member(self, make_site: MakeSite, member: dict[str, Any]) -> Iterator[HandlerProcessor]:
        with HandlerProcessor(make_site(openstack=member)) as processor:
            yield processor
            done(processor.delete(SliverRef(id=ours("bad"))).result())

    def test_gets_a_server_where_the_cloud_puts_it(self, member: HandlerProcessor) -> None:
        wanted = sliver("bad", host=None)

        observed = done(member.create(wanted).result()).observed

        assert observed
        assert observed.domain is None
        assert observed.guest
        assert observed.guest.reachable

    def test_is_told_that_a_worker_cannot_be_chosen(self, member: HandlerProcessor) -> None:
        outcome = member.create(sliver("bad")).result()

        assert outcome.error
        assert outcome.error.kind == "Denied"
        assert "administrator" in outcome.error.message
        assert outcome.left == ()

    def test_is_told_that_provider_networks_cannot_be_made(self, member: HandlerProcessor) -> None:
        wanted = sliver("bad", host=None, components=[nic("eth0", RED)])

        outcome = member.create(wanted).result()

        assert outcome.error
        assert outcome.error.kind == "Denied"
        assert outcome.left == ()
