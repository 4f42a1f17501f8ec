"""Data volumes in Cinder: every request, in order, and what comes of what goes wrong."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.contract import Volume
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.drivers.openstack.volumes.driver import OpenStackVolume, volumes_of
from fabric_direct.errors import (
    Conflict,
    DriverError,
    InvalidSite,
    InvalidSliver,
    NotFound,
    NotVerified,
    QuotaExceeded,
    TimedOut,
)
from fabric_direct.handlers.vm.steps.volumes import MakeVolume, RemoveVolume
from fabric_direct.model import Finding, Storage
from tests.unit.openstack_api import OpenStackApi

ID = "9a10650b-fc03-4152-a0f9-a637c17b8b68"
OTHER = "eeb83e8e-d323-4c86-b13f-91473dfe8325"
SERVER = "feefb7c3-dd63-4d5b-b1be-75bb41451519"
STAMP = {
    "fabric-direct:site": "TEST",
    "fabric-direct:sliver": "s1",
    "fabric-direct:component": "data",
}
LIST = (
    "GET",
    "volume",
    "/volumes/detail",
    {"metadata": json.dumps({"fabric-direct:site": "TEST", "fabric-direct:sliver": "s1"})},
)


def named(name: str) -> tuple[str, str, str, Any]:
    """Return the request for the volumes of a name."""
    return ("GET", "volume", "/volumes/detail", {"name": name})


NAMED = named("s1-data")
READ = ("GET", "volume", f"/volumes/{ID}", {})
MAKE = (
    "POST",
    "volume",
    "/volumes",
    {"volume": {"name": "s1-data", "size": 2, "metadata": STAMP}},
)
DELETE = ("DELETE", "volume", f"/volumes/{ID}", {"cascade": "False", "force": "False"})
MINE = Volume("s1", "data", ID, 2)
NOT_DELETED = "Invalid volume: Volume status must be available or error"


def volume(status: str = "available", **values: Any) -> dict[str, Any]:
    made = {"id": ID, "name": "s1-data", "size": 2, "metadata": STAMP, "multiattach": False}
    return {**made, "status": status, "attachments": [], **values}


def foreign(status: str = "available", **values: Any) -> dict[str, Any]:
    return volume(status, **{"name": "scratch", "metadata": {}, **values})


def attached(*servers: str) -> list[dict[str, str]]:
    return [{"server_id": server, "device": "/dev/vdb"} for server in servers]


@pytest.fixture
def clouds_folder(kept_connection: Path) -> Path:
    return kept_connection


@pytest.fixture
def driver(api: OpenStackApi) -> OpenStackVolume:
    return OpenStackVolume(api.site(), "worker1")


@pytest.fixture
def cache() -> Iterator[ReadCache]:
    cache = ReadCache()
    with cache.active():
        yield cache


def listed(api: OpenStackApi, *volumes: dict[str, Any]) -> None:
    api.answer("GET", "volume", "/volumes/detail", {"volumes": list(volumes)})


def reads(api: OpenStackApi, *states: dict[str, Any] | None) -> None:
    """Say what one read after the other finds; None is that there is no such volume."""
    for state in states:
        body = {"volume": state} if state else {"itemNotFound": {"code": 404, "message": "gone"}}
        api.answer("GET", "volume", f"/volumes/{ID}", body, status=200 if state else 404)


def refused(message: str, code: int, kind: str = "badRequest") -> dict[str, Any]:
    return {kind: {"code": code, "message": message}}


class TestTheSliversVolumes:
    def test_they_are_found_by_one_list_of_their_stamp(
        self, api: OpenStackApi, driver: OpenStackVolume, cache: ReadCache
    ) -> None:
        listed(api, volume())
        assert driver.volumes("s1") == (MINE,)
        assert driver.find("s1", "data") == MINE
        assert driver.find("s1", "other") is None
        assert driver.leftovers("s1") == (f"volume s1-data ({ID}, available)",)
        assert api.calls == [LIST, named("s1-other")]

    def test_one_that_the_filter_let_through_is_not_the_slivers(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume(metadata=STAMP | {"fabric-direct:sliver": "s10"}), foreign())
        assert driver.volumes("s1") == ()

    def test_those_of_all_slivers_are_found_by_the_site_alone(self, api: OpenStackApi) -> None:
        listed(api, volume(), foreign())
        found = volumes_of(cloud(api.settings), "TEST")
        assert [v.id for v in found] == [ID]
        assert api.calls == [(*LIST[:3], {"metadata": '{"fabric-direct:site": "TEST"}'})]

    @pytest.mark.parametrize("status", ["creating", "downloading", "deleting"])
    def test_one_that_is_being_made_or_removed_is_listed_but_is_not_there_yet(
        self, api: OpenStackApi, driver: OpenStackVolume, status: str
    ) -> None:
        listed(api, volume(status))
        assert driver.find("s1", "data") is None
        assert driver.volumes("s1") == (MINE,)
        assert driver.leftovers("s1") == (f"volume s1-data ({ID}, {status})",)

    @pytest.mark.parametrize("status", ["in-use", "error", "error_deleting", "backing-up"])
    def test_one_in_any_other_state_is_there(
        self, api: OpenStackApi, driver: OpenStackVolume, status: str
    ) -> None:
        listed(api, volume(status))
        assert driver.find("s1", "data") == MINE

    def test_one_that_a_killed_creation_left_unfinished_is_removed(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume("creating"))
        assert RemoveVolume(driver, "s1", "data").check() is Finding.WILL_DELETE


class TestMaking:
    def test_it_is_made_with_its_stamp_by_one_request_and_read_until_it_is_available(
        self, api: OpenStackApi, driver: OpenStackVolume, cache: ReadCache
    ) -> None:
        listed(api)
        assert driver.find("s1", "data") is None
        api.answer("POST", "volume", "/volumes", {"volume": volume("creating")}, status=202)
        reads(api, volume("creating"), volume())
        assert driver.create("s1", "data", 2) == MINE
        assert api.calls == [LIST, NAMED, MAKE, READ, READ]

    def test_twice_is_the_same_as_once(
        self, api: OpenStackApi, driver: OpenStackVolume, cache: ReadCache
    ) -> None:
        listed(api, volume("in-use"))
        assert driver.create("s1", "data", 2) == MINE
        assert driver.create("s1", "data", 2) == MINE
        assert api.calls == [LIST]

    def test_it_gets_the_volume_type_of_the_site(self, api: OpenStackApi) -> None:
        driver = OpenStackVolume(api.site(openstack={"volume_type": "nfs"}), "")
        listed(api)
        api.answer("POST", "volume", "/volumes", {"volume": volume()}, status=202)
        driver.create("s1", "data", 2)
        assert api.calls[-1][3]["volume"]["volume_type"] == "nfs"

    def test_a_volume_type_that_is_not_there_is_the_sites_fault(self, api: OpenStackApi) -> None:
        driver = OpenStackVolume(api.site(openstack={"volume_type": "nosuch"}), "")
        listed(api)
        api.answer(
            "POST",
            "volume",
            "/volumes",
            refused("Volume type with name nosuch could not be found.", 404, "itemNotFound"),
            status=404,
        )
        with pytest.raises(InvalidSite, match="no volume type 'nosuch'") as caught:
            driver.create("s1", "data", 2)
        assert caught.value.field == "openstack.volume_type"

    def test_one_of_another_size_is_not_taken_for_it(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume(size=1))
        with pytest.raises(NotVerified, match="has 1 GiB, not 2"):
            driver.create("s1", "data", 2)
        assert api.calls == [LIST]

    def test_one_that_an_earlier_run_began_is_waited_for_and_taken(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume("creating"))
        reads(api, volume())
        assert driver.create("s1", "data", 2) == MINE
        assert api.calls == [LIST, READ]

    def test_one_that_is_being_deleted_is_waited_for_and_made_anew(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume("deleting"))
        reads(api, None)
        new = volume(id=OTHER)
        api.answer("POST", "volume", "/volumes", {"volume": new}, status=202)
        assert driver.create("s1", "data", 2).source == OTHER
        assert api.calls == [LIST, READ, MAKE]

    def test_a_quota_that_has_no_room_is_said_in_cinders_words(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api)
        said = (
            "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed "
            "gigabytes quota. Requested 5000G, quota is 1000G and 0G has been consumed."
        )
        api.answer("POST", "volume", "/volumes", refused(said, 413, "overLimit"), status=413)
        with pytest.raises(QuotaExceeded, match="quota is 1000G and 0G has been consumed"):
            driver.create("s1", "data", 2)
        assert api.calls == [LIST, NAMED, MAKE]

    def test_one_that_goes_to_error_fails_with_cinders_message(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api)
        api.answer("POST", "volume", "/volumes", {"volume": volume("creating")}, status=202)
        reads(api, volume("error"))
        said = "schedule allocate volume:Could not find any available weighted backend."
        api.answer("GET", "volume", "/messages", {"messages": [{"user_message": said}]})
        with pytest.raises(DriverError, match=said):
            driver.create("s1", "data", 2)
        asked = ("GET", "volume", "/messages", {"resource_uuid": ID})
        assert api.calls == [LIST, NAMED, MAKE, READ, asked]
        assert api.requests[-1].headers["OpenStack-API-Version"] == "volume 3.31"

    def test_what_went_to_error_is_taken_back(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume("error"))
        reads(api, None)
        api.answer("DELETE", "volume", f"/volumes/{ID}", status=202)
        MakeVolume(driver, "s1", Storage(id="data", size=2)).undo()
        assert api.calls == [LIST, DELETE, READ]

    def test_its_failure_is_told_also_if_cinder_has_no_message_for_us(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume("error"))
        message = refused("Policy doesn't allow message:get_all to be performed.", 403, "forbidden")
        api.answer("GET", "volume", "/messages", message, status=403)
        with pytest.raises(DriverError, match="volume s1-data went to error"):
            driver.create("s1", "data", 2)

    def test_one_that_vanishes_while_it_is_made_is_not_done(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api)
        api.answer("POST", "volume", "/volumes", {"volume": volume("creating")}, status=202)
        reads(api, None)
        with pytest.raises(NotVerified, match="volume s1-data is gone"):
            driver.create("s1", "data", 2)

    def test_one_whose_answer_was_lost_is_found_by_its_stamp_and_not_made_again(
        self, api: OpenStackApi, driver: OpenStackVolume, cache: ReadCache
    ) -> None:
        def lost(_: requests.PreparedRequest) -> tuple[int, Any]:
            raise requests.exceptions.ReadTimeout

        listed(api)
        listed(api)
        listed(api, volume())
        api.answer("POST", "volume", "/volumes", lost)
        assert driver.create("s1", "data", 2) == MINE
        assert api.calls == [LIST, NAMED, MAKE, LIST]

    def test_one_that_the_list_by_stamp_lacks_is_found_by_its_name_and_not_made_again(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api)
        listed(api, volume(), volume(id=OTHER, metadata={}))
        assert driver.create("s1", "data", 2) == MINE
        assert api.calls == [LIST, NAMED]

    def test_of_two_the_one_counts_that_is_attached(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        """A killed process's request was carried out beside the one of the next."""
        used = volume("in-use", attachments=attached("vm-7"))
        listed(api, volume(id=OTHER), used)
        found = driver.find("s1", "data")
        assert found is not None
        assert found.source == ID

    def test_one_that_never_becomes_available_runs_out_of_time(self, api: OpenStackApi) -> None:
        driver = OpenStackVolume(api.site(limits={"call": 0.5}), "")
        listed(api, volume("creating"))
        reads(api, volume("creating"))
        with pytest.raises(TimedOut, match="volume s1-data to be available") as caught:
            driver.create("s1", "data", 2)
        assert "creating" in caught.value.why


class TestDeleting:
    def test_it_is_deleted_and_seen_to_be_gone(
        self, api: OpenStackApi, driver: OpenStackVolume, cache: ReadCache
    ) -> None:
        listed(api, volume())
        api.answer("DELETE", "volume", f"/volumes/{ID}", status=202)
        reads(api, volume("deleting"), None)
        driver.delete("s1", "data")
        assert api.calls == [LIST, DELETE, READ, READ]

    def test_what_is_not_there_is_looked_for_by_stamp_and_by_name(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api)
        driver.delete("s1", "data")
        assert api.calls == [LIST, NAMED]

    def test_only_the_components_own_is_deleted(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume(id=OTHER, metadata=STAMP | {"fabric-direct:component": "more"}))
        driver.delete("s1", "data")
        assert api.calls == [LIST, NAMED]

    @pytest.mark.parametrize("status", ["creating", "detaching"])
    def test_one_that_is_under_way_is_deleted_when_it_has_come_to_rest(
        self, api: OpenStackApi, driver: OpenStackVolume, status: str
    ) -> None:
        listed(api, volume(status))
        reads(api, volume(status), volume(), None)
        api.answer("DELETE", "volume", f"/volumes/{ID}", status=202)
        driver.delete("s1", "data")
        assert api.calls == [LIST, READ, READ, DELETE, READ]

    def test_one_that_is_being_deleted_already_is_only_waited_for(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume("deleting"))
        reads(api, None)
        driver.delete("s1", "data")
        assert api.calls == [LIST, READ]

    def test_one_that_is_attached_stays_and_cinder_says_why(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        in_use = volume("in-use", attachments=attached(SERVER))
        listed(api, in_use)
        reads(api, in_use)
        api.answer("DELETE", "volume", f"/volumes/{ID}", refused(NOT_DELETED, 400), status=400)
        with pytest.raises(Conflict, match=NOT_DELETED) as caught:
            driver.delete("s1", "data")
        assert caught.value.remedy == f"detach it from server {SERVER} first"
        assert api.calls == [LIST, DELETE, READ]

    def test_a_request_that_was_tried_again_and_found_it_going_has_done_its_work(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume())
        reads(api, volume("deleting"), None)
        api.answer("DELETE", "volume", f"/volumes/{ID}", refused(NOT_DELETED, 400), status=400)
        driver.delete("s1", "data")
        assert api.calls == [LIST, DELETE, READ, READ]

    def test_one_that_cinder_cannot_delete_is_named(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume())
        api.answer("DELETE", "volume", f"/volumes/{ID}", status=202)
        reads(api, volume("error_deleting"))
        said = "delete volume:Driver failed to delete the volume."
        api.answer("GET", "volume", "/messages", {"messages": [{"user_message": said}]})
        with pytest.raises(NotVerified, match=f"volume s1-data \\({ID}\\) is not gone.*{said}"):
            driver.delete("s1", "data")

    def test_one_that_cinder_could_not_delete_before_is_named_again(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume("error_deleting"))
        reads(api, volume("error_deleting"))
        api.answer("DELETE", "volume", f"/volumes/{ID}", refused(NOT_DELETED, 400), status=400)
        api.answer("GET", "volume", "/messages", {"messages": []})
        with pytest.raises(NotVerified, match="Cinder could not delete it"):
            driver.delete("s1", "data")


class TestPresentVolumes:
    def test_one_is_found_by_its_exact_name(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, foreign())
        assert driver.existing("scratch") == Volume("", "", ID, 2)
        assert api.calls == [("GET", "volume", "/volumes/detail", {"name": "scratch"})]

    def test_one_is_found_by_its_id(self, api: OpenStackApi, driver: OpenStackVolume) -> None:
        reads(api, foreign())
        assert driver.existing(ID) == Volume("", "", ID, 2)
        assert api.calls == [READ]

    def test_a_check_and_the_use_after_it_ask_once(
        self, api: OpenStackApi, driver: OpenStackVolume, cache: ReadCache
    ) -> None:
        listed(api, foreign())
        driver.check("scratch")
        driver.existing("scratch")
        assert len(api.calls) == 1

    def test_a_name_that_nothing_has_is_refused(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api)
        with pytest.raises(NotFound, match="no volume 'scratch'"):
            driver.existing("scratch")
        with pytest.raises(InvalidSliver, match="no volume 'scratch'") as caught:
            driver.check("scratch")
        assert caught.value.field == "volume"

    def test_an_id_that_nothing_has_is_refused(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        reads(api, None)
        with pytest.raises(InvalidSliver, match=f"no volume '{ID}'"):
            driver.check(ID)
        assert api.calls == [READ]

    def test_a_name_that_several_have_is_refused_with_their_ids(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, foreign(), foreign(id=OTHER))
        with pytest.raises(InvalidSliver, match=f"{ID}, {OTHER}. give the id of one"):
            driver.check("scratch")

    def test_one_that_was_made_for_a_sliver_is_no_present_one(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume())
        with pytest.raises(InvalidSliver, match="it was made for sliver s1"):
            driver.check("s1-data")
        with pytest.raises(NotFound, match="it was made for sliver s1"):
            driver.existing("s1-data")

    def test_one_of_the_name_that_was_made_for_a_sliver_does_not_stand_in_its_way(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        listed(api, volume(name="scratch", id=OTHER), foreign())
        assert driver.existing("scratch").source == ID

    @pytest.mark.parametrize("status", ["error", "creating", "maintenance", "awaiting-transfer"])
    def test_one_that_cannot_be_attached_is_refused(
        self, api: OpenStackApi, driver: OpenStackVolume, status: str
    ) -> None:
        listed(api, foreign(status))
        with pytest.raises(InvalidSliver, match=f"'scratch' is {status}, not available"):
            driver.check("scratch")


class TestPresentVolumesInUse:
    ASKED = ("GET", "compute", f"/servers/{SERVER}", {})

    @pytest.fixture(autouse=True)
    def _in_use(self, api: OpenStackApi) -> None:
        listed(api, foreign("in-use", attachments=attached(SERVER)))

    def serves(self, api: OpenStackApi, metadata: dict[str, str]) -> None:
        server = {"id": SERVER, "name": "web", "metadata": metadata}
        api.answer("GET", "compute", f"/servers/{SERVER}", {"server": server})

    def test_one_in_use_by_a_server_that_is_not_ours_is_refused_by_its_name(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        self.serves(api, {"fabric-direct:site": "ANOTHER"})
        with pytest.raises(InvalidSliver, match="in use by server web") as caught:
            driver.check("scratch")
        assert caught.value.field == "volume"
        assert api.calls[1:] == [self.ASKED]

    def test_one_in_use_by_a_server_that_we_may_not_see_is_refused_by_its_id(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        gone = refused("Instance could not be found.", 404, "itemNotFound")
        api.answer("GET", "compute", f"/servers/{SERVER}", gone, status=404)
        with pytest.raises(InvalidSliver, match=f"in use by server {SERVER}"):
            driver.check("scratch")

    def test_the_sliver_that_has_it_may_ask_for_it_again(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        self.serves(api, STAMP)
        driver.check("scratch", "s1")
        driver.check("scratch")

    def test_another_sliver_is_refused_if_it_says_who_it_is(
        self, api: OpenStackApi, driver: OpenStackVolume
    ) -> None:
        self.serves(api, STAMP)
        with pytest.raises(
            InvalidSliver, match=r"in use by server web \(cloud test\): it serves sliver s1"
        ):
            driver.check("scratch", "s2")


def test_one_that_several_servers_may_have_is_not_taken_by_being_in_use(
    api: OpenStackApi, driver: OpenStackVolume
) -> None:
    listed(api, foreign("in-use", multiattach=True, attachments=attached(SERVER)))
    driver.check("scratch")
    assert len(api.calls) == 1


def test_a_site_without_a_cloud_is_refused(api: OpenStackApi) -> None:
    with pytest.raises(InvalidSite, match="openstack"):
        OpenStackVolume(api.site().model_copy(update={"openstack": None}), "")
