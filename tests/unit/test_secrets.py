"""A canary in the place of each secret: it is in no log, error, stamp, answer or list of processes."""

import json
import logging
import stat
import traceback
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import yaml
from click.testing import CliRunner
from pydantic import ValidationError

from fabric_direct.cli import main
from fabric_direct.documents import parse
from fabric_direct.drivers.fake import Substrate
from fabric_direct.drivers.guests.ssh import SshGuest
from fabric_direct.drivers.openstack.client.errors import translated
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.drivers.openstack.client.stamp import server_metadata
from fabric_direct.errors import FabricDirectError, InvalidSite, InvalidSliver
from fabric_direct.model import NodeSliver, Operation
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import ChildZone, GuestSettings, Host, Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from fabric_direct.zones.app import application
from fabric_direct.zones.client import ZoneClient
from fabric_direct.zones.sealing import seal_of
from fabric_direct.zones.zone import Zone
from tests.conftest import FAKE_DRIVERS, KEY
from tests.trust import hostile_texts
from tests.unit.openstack_api import PASSWORD, OpenStackApi
from tests.unit.zone_sources import site as zone_site
from tests.unit.zone_sources import sliver_kind

CANARY = "canary-7f3a9c"
PRIVATE = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}\n-----END OPENSSH PRIVATE KEY-----"
SCRIPT = f"#!/bin/sh\nexport PASSWORD={CANARY}\n"
MakeVm = Callable[..., NodeSliver]


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Log everything, and find the canary in nothing of it."""
    caplog.set_level(logging.DEBUG)
    yield caplog
    assert CANARY not in caplog.text


def said(error: BaseException) -> str:
    """Return all that a traceback of an error says, with causes, contexts and notes."""
    return "".join(traceback.format_exception(error))


# --- the boot script, which may hold secrets


def test_a_boot_script_is_in_no_outcome_and_no_stamp(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    sliver = vm(boot_script=SCRIPT)
    outcomes = [
        processor.create(sliver).result(),
        processor.poa(sliver.ref(), "no such action", {"x": CANARY}).result(),
        processor.probe(sliver.ref()).result(),
        processor.modify(sliver.model_copy(update={"components": ()})).result(),
        processor.poa(sliver.ref(), "stamp", {}).result(),
        processor.delete(sliver.ref()).result(),
    ]
    assert CANARY not in "".join(outcome.model_dump_json() for outcome in outcomes)
    assert CANARY not in json.dumps(server_metadata("TEST", sliver.stamp()))
    assert CANARY not in sliver.stamp().model_dump_json()


def test_the_journal_has_a_boot_script_until_the_operation_ends_for_its_user_alone(
    tmp_path: Path, vm: MakeVm
) -> None:
    sliver, journal = vm(boot_script=SCRIPT), Journal(FileStore(tmp_path))
    journal.begin(Operation.CREATE, sliver.model_dump(mode="json"))
    (entry,) = (tmp_path / "journal").iterdir()

    assert CANARY in entry.read_text()  # who finishes a creation needs it
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert stat.S_IMODE(entry.parent.stat().st_mode) == 0o700
    journal.end(sliver.id)
    assert list((tmp_path / "journal").iterdir()) == []


def test_nothing_of_it_is_left_in_the_state_when_a_creation_has_ended(
    processor: HandlerProcessor, fake_site: Site, vm: MakeVm
) -> None:
    assert processor.create(vm(boot_script=SCRIPT)).result().ok

    files = [path for path in fake_site.state_dir.rglob("*") if path.is_file()]
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]


# --- documents and values that are refused


@pytest.mark.parametrize(
    "values",
    [
        {"boot_script": SCRIPT + "x" * 70_000},
        {"boot_script": [SCRIPT]},
        {"ssh_keys": [PRIVATE]},
        {"ssh_keys": [f"ssh-rsa {CANARY}"]},
        {"boot_script": SCRIPT, "image": "a/b"},
    ],
    ids=["long", "list", "private key", "no key", "another field"],
)
def test_a_refused_sliver_does_not_show_it(values: dict[str, Any]) -> None:
    text = json.dumps({**hostile_texts.VM, **values})

    with pytest.raises(InvalidSliver) as caught:
        parse(text, "vm.json", NodeSliver, InvalidSliver)

    assert CANARY not in said(caught.value)


@pytest.mark.parametrize("values", [{"boot_script": SCRIPT, "image": 1}, {"ssh_keys": [PRIVATE]}])
def test_a_model_that_refuses_does_not_show_it(vm: MakeVm, values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        vm(**values)

    assert CANARY not in said(caught.value)


def test_a_private_key_among_the_actors_keys_is_not_shown() -> None:
    given = {**hostile_texts.NODE, "keys": PRIVATE}

    with pytest.raises(InvalidSliver) as caught:
        hostile_texts._virtual_machine(given)

    assert "properties[user.ssh.key]" in str(caught.value)
    assert CANARY not in said(caught.value)


def test_the_actors_boot_script_is_not_shown_when_another_field_is_wrong() -> None:
    with pytest.raises(InvalidSliver) as caught:
        hostile_texts._virtual_machine({**hostile_texts.NODE, "script": SCRIPT, "image": "a/b"})

    assert CANARY not in said(caught.value)


def test_an_actions_data_are_not_shown(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    assert processor.create(vm()).result().ok

    outcome = processor.poa(vm().ref(), "addkey", {"keys": [PRIVATE]}).result()

    assert outcome.error
    assert CANARY not in outcome.model_dump_json()


# --- the command line


def test_the_command_line_prints_none(tmp_path: Path) -> None:
    networks = {"red": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"}}
    site = {"site": "CLI", "state_dir": str(tmp_path / "state"), "drivers": FAKE_DRIVERS}
    (tmp_path / "site.yaml").write_text(
        yaml.safe_dump({**site, "guest": "fake", "networks": networks})
    )
    sliver = {"id": "s-1", "name": "n", "image": "tiny", "boot_script": SCRIPT, "ssh_keys": [KEY]}
    size = {"capacities": {"core": 1, "ram": 1, "disk": 1}}
    (tmp_path / "vm.yaml").write_text(yaml.safe_dump({**sliver, **size}))
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump({**sliver, "ssh_keys": [PRIVATE]}))
    for words in (
        ("plan", "--json", "vm.yaml"),
        ("create", "--json", "vm.yaml"),
        ("probe", "--json", "s-1"),
        ("create", "--json", "bad.yaml"),
        ("-v", "delete", "--json", "vm.yaml"),
    ):
        paths = [str(tmp_path / word) if word.endswith(".yaml") else word for word in words]
        done = CliRunner().invoke(main, ["--site", str(tmp_path / "site.yaml"), *paths])
        assert done.output, words
        assert CANARY not in done.output, words


# --- a cloud


@pytest.mark.parametrize("status", [200, 400, 401, 403, 409, 500])
def test_neither_password_nor_token_nor_user_data_is_in_an_error_of_a_cloud(
    api: OpenStackApi, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    api.answer("POST", "compute", "/servers", {"fault": {"message": "no"}}, status=status)
    with suppress(FabricDirectError), translated("make the server"):
        cloud(api.settings).compute.create_server(name="n", user_data=CANARY, imageRef="x")

    assert api.logins
    assert PASSWORD not in caplog.text
    assert api.token not in caplog.text


@pytest.mark.parametrize("fails", [requests.ConnectionError, requests.ReadTimeout])
def test_a_cloud_that_breaks_off_does_not_show_what_was_sent(
    api: OpenStackApi, caplog: pytest.LogCaptureFixture, fails: type[Exception]
) -> None:
    def breaks(_: Any) -> Any:
        raise fails("broken")

    api.answer("POST", "compute", "/servers", breaks)
    with pytest.raises(FabricDirectError) as caught, translated("make the server"):
        cloud(api.settings).compute.create_server(name="n", user_data=CANARY, imageRef="x")

    everything = said(caught.value) + caplog.text
    assert not [secret for secret in (CANARY, PASSWORD, api.token) if secret in everything]


def test_a_refused_password_is_not_shown(
    api: OpenStackApi, caplog: pytest.LogCaptureFixture
) -> None:
    api.refused.add(PASSWORD)
    with pytest.raises(FabricDirectError) as caught, translated("list"):
        list(cloud(api.settings).network.ports())

    assert PASSWORD not in said(caught.value) + caplog.text


@pytest.mark.parametrize("content", [f"a: [{CANARY}", f"{CANARY}: \x01", f"'{CANARY}"])
def test_a_clouds_yaml_that_cannot_be_read_is_not_shown(api: OpenStackApi, content: str) -> None:
    api.clouds.write_text(content)

    with pytest.raises(InvalidSite) as caught:
        cloud(api.settings)

    assert CANARY not in said(caught.value)


# --- keys and tokens in files


def test_a_private_key_that_cannot_be_read_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(PRIVATE)
    site = Site(site="TEST", guest="ssh", guest_access=GuestSettings(ssh_key=path))

    with pytest.raises(InvalidSite) as caught:
        SshGuest(site, "localhost")._load_key()

    assert CANARY not in said(caught.value)


def test_a_password_in_an_ssh_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ValidationError) as caught:
        Host(ssh=f"ssh://root:{CANARY}@w1")

    assert CANARY not in said(caught.value)


@pytest.mark.parametrize("content", [CANARY + "\nä", f"ä{CANARY}", f"{CANARY} {CANARY}"])
def test_a_token_that_cannot_be_used_is_not_shown(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)

    with pytest.raises(InvalidSite) as caught:
        ZoneClient("west", ChildZone(url="http://127.0.0.1:1", token_file=path))

    assert CANARY not in said(caught.value)


def test_a_zones_key_that_cannot_be_used_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "zone").mkdir()
    (tmp_path / "zone" / "key").write_text(CANARY)

    with pytest.raises(InvalidSite) as caught:
        seal_of(tmp_path)

    assert CANARY not in said(caught.value)


def test_a_zones_key_is_for_its_user_alone(tmp_path: Path) -> None:
    seal_of(tmp_path)

    assert stat.S_IMODE((tmp_path / "zone" / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "zone").stat().st_mode) == 0o700


# --- a zone


@asynccontextmanager
async def asked(folder: Path) -> Any:
    zone = Zone(zone_site(folder), [])
    await zone.start()
    transport = httpx.ASGITransport(application(zone, ("a-token",)), raise_app_exceptions=False)
    headers = {"Authorization": "Bearer a-token"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://zone", headers=headers
    ) as client:
        yield client
    await zone.close()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_zone_does_not_repeat_what_it_was_sent(tmp_path: Path) -> None:
    kind = sliver_kind()
    kind["sliver"] |= {"boot_script": SCRIPT}
    async with asked(tmp_path) as client:
        for body in (
            {"request_id": "request-1", "kinds": [kind]},
            {"request_id": "request-1", "kinds": [kind], "more": SCRIPT},
            {"request_id": SCRIPT, "kinds": [kind]},
            {"request_id": "request-1", "kinds": [kind | {"kind": [SCRIPT]}]},
        ):
            answer = await client.post("/zones/boot", json=body)
            assert answer.status_code in {409, 422}
            assert CANARY not in answer.text
        denied = await client.get("/zones", headers={"Authorization": f"Bearer {CANARY}"})
        assert denied.status_code == 401
        assert CANARY not in denied.text
