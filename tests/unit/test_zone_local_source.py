"""The site's own hosts as a source: what they offer, what is claimed, made, deleted and told."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.errors import Conflict, NotFound, Refused, Unreachable
from fabric_direct.model import NodeSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.zones.local_source import LocalSource
from fabric_direct.zones.sealing import seal_of
from fabric_direct.zones.wire import (
    BootRequest,
    Instance,
    InstanceStatus,
    Selection,
    reservation_of,
)
from tests.conftest import FAKE_DRIVERS
from tests.unit.zone_sources import asked, kind, sliver_kind, wanted

pytestmark = pytest.mark.anyio

HOSTS = ("worker-alpha", "worker-beta")
GPU = {"devices": [{"component": "gpu", "type": "GPU"}]}
GPU_SLIVER = {"components": [{"id": "gpu", "type": "GPU"}]}
SMALL = {"capacities": {"core": 1, "ram": 1, "disk": 1}, "image": "tiny"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def own_site(tmp_path: Path) -> Site:
    """Two hosts of four cores; the first one has a GPU."""
    size = {"cores": 4, "ram": 16, "disk": 100}
    return Site(
        site="LEAF",
        state_dir=tmp_path / "leaf",
        drivers=FAKE_DRIVERS,
        guest="fake",
        images={"tiny": {}},
        hosts={
            "worker-alpha": {"devices": [{"type": "GPU", "bdf": "0000:40:00.0"}]},
            "worker-beta": {},
        },
        fake={"hosts": {"worker-alpha": {**size, "gpus": 1}, "worker-beta": size}},
    )


@pytest.fixture
def hosts(own_site: Site) -> Iterator[dict[str, Substrate]]:
    things = {host: substrate(own_site, host) for host in HOSTS}
    yield things
    for each in things.values():
        each.mend()


@pytest.fixture
def at_work(own_site: Site, hosts: dict[str, Substrate]) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(own_site) as processor:
        yield processor
        for each in hosts.values():
            each.mend()


@pytest.fixture
async def own(own_site: Site, at_work: HandlerProcessor) -> LocalSource:
    return LocalSource(own_site, at_work)


async def select(own: LocalSource, *kinds: dict[str, Any], **values: Any) -> Selection:
    return await own.select(asked(*kinds, **values), deadline=10)


async def boot(own: LocalSource, request: BootRequest) -> str:
    return await own.boot(request, deadline=10)


async def booted(own: LocalSource, number: int = 1, **values: Any) -> str:
    offers = (await select(own, kind(number=number, **values))).offers
    return await boot(own, wanted(sliver_kind(number=number, **values), offers=offers))


async def until(
    own: LocalSource, reservation: str, *statuses: InstanceStatus
) -> tuple[Instance, ...]:
    """Return the instances once all have one of the statuses."""
    async with asyncio.timeout(20):
        while True:
            instances = await own.instances(reservation, deadline=1)
            if {each.status for each in instances} <= set(statuses):
                return instances
            await asyncio.sleep(0.02)


def where(hosts: dict[str, Substrate]) -> dict[str, str]:
    """Return the host of each server."""
    return {sliver: name for name, things in hosts.items() for sliver in things.servers}


class TestSelecting:
    async def test_offers_a_place_for_each_with_its_cost(self, own: LocalSource) -> None:
        selection = await select(own, kind(number=3))

        assert [(o.kind, o.zone) for o in selection.offers] == [("small", "LEAF")] * 3
        assert [o.cost for o in selection.offers] == sorted(o.cost for o in selection.offers)
        assert not selection.shortages

    async def test_makes_and_claims_nothing(
        self, own: LocalSource, hosts: dict[str, Substrate], at_work: HandlerProcessor
    ) -> None:
        before = at_work.hosts()
        await select(own, kind(number=8))

        assert at_work.hosts() == before
        assert not where(hosts)

    async def test_offers_no_more_than_fits_all_at_once(self, own: LocalSource) -> None:
        selection = await select(own, kind("a", 5), kind("b", 5))

        assert len(selection.offers) == 8
        assert sum(s.missing for s in selection.shortages) == 2
        assert all(sum(s.refused.values()) == 2 for s in selection.shortages)

    async def test_offers_as_many_as_have_a_device(self, own: LocalSource) -> None:
        selection = await select(own, kind("gpu", 2, needs={**SMALL, **GPU}))

        assert len(selection.offers) == 1
        assert selection.shortages[0].missing == 1

    async def test_keeps_apart_what_must_be(self, own: LocalSource) -> None:
        selection = await select(own, kind(number=3, apart=True))

        assert len(selection.offers) == 2

    async def test_of_what_must_share_a_host_finds_one_for_all(self, own: LocalSource) -> None:
        assert len((await select(own, kind(number=4, together=True))).offers) == 4
        assert (await select(own, kind(number=5, together=True))).shortages

    @pytest.mark.parametrize(
        "needs",
        [
            {**SMALL, "devices": [{"component": "x", "type": "Teleporter"}]},
            {**SMALL, "devices": [{"component": "x", "type": "GPU", "uplink": "ens1"}]},
            {**SMALL, "capacities": {"core": 1024, "ram": 65_536, "disk": 1_048_576}},
            {**SMALL, "rules": {"required_traits": ["CUSTOM_UNHEARD_OF"]}},
            {**SMALL, "architecture": "s390x"},
        ],
    )
    async def test_of_a_kind_that_cannot_be_says_so_and_serves_the_others(
        self, own: LocalSource, needs: dict[str, Any]
    ) -> None:
        selection = await select(own, kind("odd", 2, needs=needs), kind())

        assert [o.kind for o in selection.offers] == ["small"]
        assert [(s.kind, s.missing) for s in selection.shortages] == [("odd", 2)]

    async def test_heeds_an_architecture_that_is_asked_for(self, own: LocalSource) -> None:
        (offer,) = (await select(own, kind(needs={**SMALL, "architecture": "x86_64"}))).offers

        await boot(own, wanted(sliver_kind(), offers=(offer,)))

    async def test_of_an_image_that_no_host_has_says_so_and_serves_the_others(
        self, own: LocalSource, hosts: dict[str, Substrate]
    ) -> None:
        for each in hosts.values():
            each.images = {"tiny"}

        selection = await select(own, kind("odd", needs={**SMALL, "image": "none"}), kind())

        assert [o.kind for o in selection.offers] == ["small"]
        assert [s.kind for s in selection.shortages] == ["odd"]

    async def test_does_without_a_host_that_does_not_answer(
        self, own: LocalSource, hosts: dict[str, Substrate]
    ) -> None:
        hosts["worker-alpha"].fault("compute.inventory", at=0, kind="fail")

        assert len((await select(own, kind(number=8))).offers) == 4

    async def test_of_hosts_that_cannot_be_read_at_all_names_none(
        self, own: LocalSource, at_work: HandlerProcessor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def place(*_: object, **__: object) -> None:
            raise Unreachable("worker-alpha at 10.1.2.3 does not answer", where="worker-alpha")

        monkeypatch.setattr(at_work, "place", place)

        with pytest.raises(Unreachable) as refused:
            await select(own, kind())

        assert "worker-alpha" not in f"{refused.value}"
        assert "10.1.2.3" not in f"{refused.value}"


class TestBooting:
    async def test_makes_the_instances_where_they_were_offered(
        self, own: LocalSource, own_site: Site, hosts: dict[str, Substrate]
    ) -> None:
        offers = (await select(own, kind(number=3))).offers
        places = [seal_of(own_site.state_dir).open(o.blob, "place")[1]["host"] for o in offers]

        reservation = await boot(own, wanted(sliver_kind(number=3), offers=offers))
        instances = await until(own, reservation, InstanceStatus.DONE)

        digits = reservation.removeprefix("r-")
        assert where(hosts) == {
            f"s-small-{digits}-{number}": host for number, host in enumerate(places, 1)
        }
        assert [i.name for i in instances] == ["small-1", "small-2", "small-3"]

    async def test_names_the_zone_in_the_history(
        self, own: LocalSource, at_work: HandlerProcessor
    ) -> None:
        reservation = await booted(own, 1)
        await until(own, reservation, InstanceStatus.DONE)
        await own.delete(reservation, deadline=1)
        await until(own, reservation, InstanceStatus.DELETED)

        asked = [(r.operation, r.asked_by) for r in at_work.history()]
        assert asked == [("create", "zone LEAF"), ("delete", "zone LEAF")]

    async def test_gives_the_device_that_was_offered(
        self, own: LocalSource, hosts: dict[str, Substrate]
    ) -> None:
        offers = (await select(own, kind("gpu", needs={**SMALL, **GPU}))).offers
        sliver = {"id": "s-gpu", "name": "gpu", **SMALL, **GPU_SLIVER}
        request = wanted(sliver_kind("gpu", sliver=sliver), offers=offers)

        reservation = await boot(own, request)
        await until(own, reservation, InstanceStatus.DONE)

        (plugged,) = hosts["worker-alpha"].plugged.values()
        assert [str(p.host_address) for p in plugged] == ["0000:40:00.0"]

    async def test_takes_numbers_that_are_given(self, own: LocalSource) -> None:
        offers = (await select(own, kind(number=2))).offers
        request = wanted(sliver_kind(number=2, numbers=[7, 1000]), offers=offers)

        instances = await own.instances(await boot(own, request), deadline=1)

        assert [i.name for i in instances] == ["small-7", "small-1000"]

    async def test_with_the_longest_id_and_name_makes_valid_slivers(
        self, own: LocalSource, hosts: dict[str, Substrate]
    ) -> None:
        offers = (await select(own, kind())).offers
        sliver = {"id": "i" * 41, "name": "n" * 58, **SMALL}
        request = wanted(sliver_kind(sliver=sliver, numbers=[1000]), offers=offers)

        await until(own, await boot(own, request), InstanceStatus.DONE)

        (sliver_id,) = where(hosts)
        assert len(sliver_id) == 63

    @pytest.mark.parametrize("related", ["together", "apart"])
    async def test_keeps_relations(
        self, own: LocalSource, hosts: dict[str, Substrate], related: str
    ) -> None:
        reservation = await booted(own, 2, **{related: True})
        await until(own, reservation, InstanceStatus.DONE)

        assert len(set(where(hosts).values())) == (1 if related == "together" else 2)

    async def test_again_answers_the_same_and_makes_nothing(
        self, own: LocalSource, hosts: dict[str, Substrate]
    ) -> None:
        offers = (await select(own, kind())).offers
        request = wanted(sliver_kind(), offers=offers)

        reservations = {await boot(own, request) for _ in range(3)}
        await until(own, *reservations, InstanceStatus.DONE)

        assert reservations == {reservation_of("request-1")}
        assert len(where(hosts)) == 1

    @pytest.mark.parametrize("resource_type", ["Teleporter", "L2Bridge"])
    async def test_of_what_is_no_node_is_refused(
        self, own: LocalSource, resource_type: str
    ) -> None:
        offers = (await select(own, kind())).offers
        sliver = {"id": "s", "name": "n", **SMALL, "type": resource_type}

        with pytest.raises(Refused) as refused:
            await boot(own, wanted(sliver_kind(sliver=sliver), offers=offers))

        assert refused.value.field == "type"

    async def test_that_fails_on_the_hosts_says_so_by_the_errors_class(
        self, own: LocalSource, hosts: dict[str, Substrate]
    ) -> None:
        for each in hosts.values():
            each.fault("compute.create", at=0, kind="fail")

        (instance,) = await until(own, await booted(own), InstanceStatus.FAILED)

        assert instance.error == "NoHost"  # each has been tried
        assert not where(hosts)


class TestAnOffer:
    async def refused(self, own: LocalSource, request: BootRequest, why: str) -> None:
        with pytest.raises(Conflict, match=why) as refused:
            await boot(own, request)
        assert not any(host in f"{refused.value}" for host in HOSTS)
        with pytest.raises(NotFound):
            await own.instances(reservation_of(request.request_id), deadline=1)

    async def test_for_another_kind_of_instance_is_refused(self, own: LocalSource) -> None:
        offers = (await select(own, kind())).offers
        larger = {"id": "s", "name": "n", **SMALL, "capacities": {"core": 4, "ram": 8, "disk": 9}}

        await self.refused(own, wanted(sliver_kind(sliver=larger), offers=offers), "something else")

    async def test_for_a_kind_with_other_relations_is_refused(self, own: LocalSource) -> None:
        offers = (await select(own, kind())).offers

        await self.refused(own, wanted(sliver_kind(together=True), offers=offers), "something else")

    async def test_that_is_another_zones_is_refused(self, own: LocalSource, tmp_path: Path) -> None:
        (offer,) = (await select(own, kind())).offers
        blob = seal_of(tmp_path / "other").seal(["digest", {}], "place", 60)
        foreign = offer.model_copy(update={"blob": blob})

        await self.refused(own, wanted(sliver_kind(), offers=(foreign,)), "not this zone's")

    async def test_that_is_missing_is_refused(self, own: LocalSource) -> None:
        offers = (await select(own, kind())).offers

        await self.refused(
            own, wanted(sliver_kind(number=2), offers=offers), "some instances have no offer"
        )

    async def test_whose_place_was_taken_meanwhile_is_refused(
        self, own: LocalSource, at_work: HandlerProcessor, vm: Callable[..., NodeSliver]
    ) -> None:
        offers = (await select(own, kind(number=8))).offers
        other = vm(id="other", host="worker-alpha", components=())
        assert at_work.create(other).result(60).ok

        await self.refused(own, wanted(sliver_kind(number=8), offers=offers), "not valid any more")

    async def test_of_which_two_take_the_last_goes_to_one(self, own: LocalSource) -> None:
        needs, sliver = {**SMALL, **GPU}, {"id": "s", "name": "gpu", **SMALL, **GPU_SLIVER}
        offers = [
            (await select(own, kind("gpu", needs=needs), request_id=f"request-{n}")).offers
            for n in range(2)
        ]

        answers = await asyncio.gather(
            *(
                boot(
                    own,
                    wanted(
                        sliver_kind("gpu", sliver=sliver),
                        offers=offers[n],
                        request_id=f"request-{n}",
                    ),
                )
                for n in range(2)
            ),
            return_exceptions=True,
        )

        assert sorted(type(answer).__name__ for answer in answers) == ["Conflict", "str"]

    async def test_two_of_which_are_on_one_host_are_refused_for_what_must_be_apart(
        self, own: LocalSource, own_site: Site
    ) -> None:
        (one,) = (await select(own, kind(apart=True))).offers
        (two,) = (await select(own, kind(apart=True), request_id="request-2")).offers

        await self.refused(
            own, wanted(sliver_kind(number=2, apart=True), offers=(one, two)), "not valid any more"
        )


class TestDeleting:
    async def test_removes_the_instances(
        self, own: LocalSource, hosts: dict[str, Substrate]
    ) -> None:
        reservation = await booted(own, 3)

        await own.delete(reservation, deadline=10)
        await until(own, reservation, InstanceStatus.DELETED)

        assert not where(hosts)

    async def test_lets_the_place_be_had_again(self, own: LocalSource) -> None:
        reservation = await booted(own, 8)
        assert not (await select(own, kind())).offers

        await own.delete(reservation, deadline=10)
        await until(own, reservation, InstanceStatus.DELETED)

        assert (await select(own, kind())).offers

    async def test_says_what_could_not_be(
        self, own: LocalSource, hosts: dict[str, Substrate]
    ) -> None:
        reservation = await booted(own)
        await until(own, reservation, InstanceStatus.DONE)
        (host,) = where(hosts).values()
        hosts[host].fault("compute.delete", at=0, kind="fail")

        await own.delete(reservation, deadline=10)
        (instance,) = await until(own, reservation, InstanceStatus.PARTIAL, InstanceStatus.FAILED)
        assert instance.status is InstanceStatus.PARTIAL
        assert instance.error == "DriverError"

        hosts[host].mend()
        await own.delete(reservation, deadline=10)
        await until(own, reservation, InstanceStatus.DELETED)

    async def test_of_what_is_just_being_booted_waits_for_that(
        self,
        own: LocalSource,
        hosts: dict[str, Substrate],
        at_work: HandlerProcessor,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        reached, go_on, build = threading.Event(), threading.Event(), at_work.build

        def held_up(*args: Any) -> Any:
            reached.set()
            go_on.wait(60)
            return build(*args)

        monkeypatch.setattr(at_work, "build", held_up)
        offers = (await select(own, kind())).offers
        booting = asyncio.create_task(boot(own, wanted(sliver_kind(), offers=offers)))
        await asyncio.to_thread(reached.wait, 20)
        booting.cancel()  # who asked has given up
        deleting = asyncio.create_task(own.delete(reservation_of("request-1"), deadline=10))
        await asyncio.sleep(0.05)
        go_on.set()
        await asyncio.gather(booting, deleting, return_exceptions=True)
        await until(own, reservation_of("request-1"), InstanceStatus.DELETED)
        await asyncio.to_thread(at_work.shutdown)  # whatever was begun has come to its end

        assert not where(hosts)


class TestAfterARestart:
    async def test_what_was_being_made_is_made(
        self, own: LocalSource, own_site: Site, hosts: dict[str, Substrate]
    ) -> None:
        offers = (await select(own, kind(number=2))).offers
        with HandlerProcessor(own_site, workers=1) as first:
            for each in hosts.values():
                each.delay = 0.05
            ending = LocalSource(own_site, first)
            reservation = await boot(ending, wanted(sliver_kind(number=2), offers=offers))
            first.shutdown(timeout=0)  # one is under way, the other has not begun
        for each in hosts.values():
            each.delay = 0.0

        assert InstanceStatus.PENDING in {
            each.status for each in await own.instances(reservation, deadline=1)
        }

        await own.resume()
        await until(own, reservation, InstanceStatus.DONE)

        assert len(where(hosts)) == 2

    async def test_what_was_being_deleted_is_deleted(
        self, own: LocalSource, own_site: Site, hosts: dict[str, Substrate]
    ) -> None:
        reservation = await booted(own)
        await until(own, reservation, InstanceStatus.DONE)
        own._instances.delete(reservation)  # and here the process ends

        await own.resume()
        await until(own, reservation, InstanceStatus.DELETED)

        assert not where(hosts)

    async def test_no_boot_script_is_kept_of_what_is_made(
        self, own: LocalSource, own_site: Site
    ) -> None:
        offers = (await select(own, kind())).offers
        sliver = {"id": "s", "name": "n", **SMALL, "boot_script": "#!/bin/sh\n# my-secret"}
        reservation = await boot(own, wanted(sliver_kind(sliver=sliver), offers=offers))
        await until(own, reservation, InstanceStatus.DONE)

        with own._instances._database.reading() as db:
            assert db.execute("SELECT sliver FROM instance").fetchall() == [("",)]

    async def test_what_was_deleted_long_ago_is_forgotten(
        self, own: LocalSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reservation = await booted(own)
        await own.delete(reservation, deadline=10)
        await until(own, reservation, InstanceStatus.DELETED)
        monkeypatch.setattr("fabric_direct.zones.instances.SHOWN", -1)

        own._instances.add("r-other", {})

        with pytest.raises(NotFound):
            await own.instances(reservation, deadline=1)


class TestWhatItSays:
    async def test_of_its_capabilities_is_what_may_still_be_promised(
        self, own: LocalSource
    ) -> None:
        before = await own.capabilities(deadline=1)
        await booted(own, 3)
        after = await own.capabilities(deadline=1)

        assert (before.hosts, before.cores, before.ram, before.disk) == (2, 8, 32, 200)
        assert (after.cores, after.ram, after.disk) == (5, 29, 197)
        assert [(d.type, d.free) for d in before.devices] == [("GPU", 1)]

    async def test_leaves_out_hosts_in_maintenance(self, own_site: Site) -> None:
        host = own_site.hosts["worker-beta"].model_copy(update={"maintenance": "a new disk"})
        less = own_site.model_copy(update={"hosts": {**own_site.hosts, "worker-beta": host}})

        with HandlerProcessor(less) as processor:
            assert (await LocalSource(less, processor).capabilities(deadline=1)).hosts == 1

    async def test_names_no_host_and_no_address(self, own: LocalSource) -> None:
        selection = await select(own, kind(number=3), kind("gpu", 2, needs={**SMALL, **GPU}))
        reservation = await booted(own)
        told = [
            selection.model_dump_json(),
            (await own.capabilities(deadline=1)).model_dump_json(),
            *(i.model_dump_json() for i in await own.instances(reservation, deadline=1)),
        ]

        assert not [word for word in (*HOSTS, "0000:40:00.0") if word in "".join(told)]

    async def test_of_what_the_site_refuses_is_the_field_alone(
        self, own: LocalSource, at_work: HandlerProcessor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def build(*_: object) -> None:
            raise Refused("worker-alpha knows no such image", field="image")

        offers = (await select(own, kind())).offers
        monkeypatch.setattr(at_work, "build", build)

        with pytest.raises(Refused) as refused:
            await boot(own, wanted(sliver_kind(), offers=offers))

        assert refused.value.field == "image"
        assert "worker-alpha" not in str(refused.value)
