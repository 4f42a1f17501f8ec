"""``fabric-direct state``: tables are made, and the state of a site moves there and back."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import yaml
from click.testing import CliRunner, Result
from psycopg.sql import SQL, Identifier

from fabric_direct.cli import main
from fabric_direct.drivers.ssh.known_hosts import pin, pinned, unpin
from fabric_direct.model import Operation, SliverRef
from fabric_direct.placement.claims import Claims
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Conductors, Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from fabric_direct.state.postgresql import VERSION
from fabric_direct.state.site_store import store_of
from fabric_direct.state.sliver_types import SliverTypes
from tests.database.slivers import vm

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBtnZNdSU5PrnpaVI6AkLxqwFQqVvGFfI4mnLLq/AbCd"
KEY_OF_ANOTHER_KIND = (
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBDLdAfpn"
    "Uqg/TogUAuvIRRqcoRHe36qv5G3lO5upqlS7/tBxdhGgQ78cii/MSiKzeO/TFuiNXcH6s+sWPE8WOWw="
)
Run = Callable[..., Result]


@pytest.fixture
def run(site: Site, tmp_path: Path) -> Run:
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump(site.model_dump(mode="json", exclude_defaults=True)))
    return lambda *words: CliRunner().invoke(main, ["--site", str(path), *words])


@pytest.fixture
def local(site: Site) -> Site:
    """The site as it was before, with its state in files."""
    return site.model_copy(update={"state_database": None})


def make_state(site: Site) -> None:
    with HandlerProcessor(site) as processor:
        assert processor.create(vm()).result().ok
    Journal(store_of(site)).begin(Operation.CREATE, {"id": "vm-2", "type": "VM"})
    Claims(store_of(site), lifetime=60, timeout=60).remember("vm-2", "localhost")
    pin(site, "10.20.1.9", KEY)


def assert_state(site: Site) -> None:
    store = store_of(site)
    assert SliverTypes(store, timeout=60).of("vm-1") == "VM"
    assert Claims(store, lifetime=60, timeout=60).home("vm-2") == "localhost"
    assert [entry.sliver["id"] for entry in Journal(store).unfinished()] == ["vm-2"]
    assert "10.20.1.9" in pinned(site)
    with HandlerProcessor(site) as processor:
        assert [record.subject for record in processor.history("vm-1")] == ["vm-1"]
        assert processor.probe(SliverRef(id="vm-1", type="VM")).result().ok


def test_a_site_moves_into_the_database_and_back(run: Run, site: Site, local: Site) -> None:
    make_state(local)
    moved = run("state", "copy", "--to", "database")
    assert moved.exit_code == 0, moved.output
    assert "Copied to the database: " in moved.output
    assert "the journal: 1" in moved.output
    assert_state(site)

    Journal(FileStore(local.state_dir)).end("vm-2")
    back = run("state", "copy", "--to", "files", "--replace")
    assert back.exit_code == 0, back.output
    assert_state(local)


def test_a_long_history_moves(run: Run, site: Site, local: Site) -> None:
    said = "x" * 2**16
    log = FileStore(local.state_dir).log("history", 2**30)
    for number in range(50):
        log.append(f'{{"said": "{number}{said}"}}')
    moved = run("state", "copy", "--to", "database")
    assert moved.exit_code == 0, moved.output
    assert list(store_of(site).log("history", 2**30).lines()) == [
        each for each in log.lines() if each
    ]


def test_what_a_crash_of_the_machine_left_of_a_file_moves_as_nothing(
    run: Run, site: Site, local: Site
) -> None:
    make_state(local)
    nothing = b"\0" * 512
    (local.state_dir / "journal" / "vm-3.json").write_bytes(nothing)
    with (local.state_dir / "history" / "history.jsonl").open("ab") as history:
        history.write(nothing)
    moved = run("state", "copy", "--to", "database")
    assert moved.exit_code == 0, moved.output
    assert_state(site)
    assert len(Journal(store_of(site)).foreign()) == 1


def test_all_keys_of_an_address_move(run: Run, site: Site, local: Site) -> None:
    keys = f"10.20.1.9 {KEY}\n10.20.1.9 {KEY_OF_ANOTHER_KIND}\n"
    local.state_dir.mkdir(mode=0o700)
    (local.state_dir / "known_hosts").write_text(keys)
    assert "pinned host keys: 1" in run("state", "copy", "--to", "database").output
    (local.state_dir / "known_hosts").unlink()
    assert set(pinned(site)["10.20.1.9"]) == {"ssh-ed25519", "ecdsa-sha2-nistp256"}


def test_a_key_that_moved_is_trusted_no_longer_than_its_guest(
    run: Run, site: Site, local: Site
) -> None:
    pin(local, "10.20.1.9", KEY)
    assert run("state", "copy", "--to", "database").exit_code == 0
    assert "10.20.1.9" in pinned(local)
    unpin(site, "10.20.1.9")
    assert "10.20.1.9" not in pinned(site)


def test_what_is_there_is_not_replaced_unasked(run: Run, site: Site, local: Site) -> None:
    make_state(local)
    SliverTypes(store_of(site), timeout=60).note(SliverRef(id="vm-9", type="VM"))
    refused = run("state", "copy", "--to", "database")
    assert refused.exit_code == 2
    assert "there is state already" in refused.output
    assert "table sliver" in refused.output
    assert SliverTypes(store_of(site), timeout=60).of("vm-1") == ""


def test_nothing_replaces_what_is_there(run: Run, site: Site) -> None:
    SliverTypes(store_of(site), timeout=60).note(SliverRef(id="vm-9", type="VM"))
    refused = run("state", "copy", "--to", "database", "--replace")
    assert refused.exit_code == 2
    assert "there is no state to copy" in refused.output
    assert SliverTypes(store_of(site), timeout=60).of("vm-9") == "VM"


def test_a_site_that_is_worked_on_is_not_moved(run: Run, site: Site, local: Site) -> None:
    make_state(local)
    with store_of(site).exclusive("sliver-vm-1", "it", timeout=60):
        refused = run("state", "copy", "--to", "database")
    assert refused.exit_code != 0
    assert "locked: sliver-vm-1" in refused.output


def test_a_site_with_operations_that_wait_is_not_moved(run: Run, site: Site, local: Site) -> None:
    make_state(local)
    with HandlerProcessor(site.model_copy(update={"conductors": Conductors()})) as processor:
        processor.create(vm())
        processor.leave()
    refused = run("state", "copy", "--to", "database")
    assert refused.exit_code != 0
    assert "create of vm-1" in refused.output


def test_the_tables_are_made_by_a_command(run: Run, site: Site) -> None:
    again = run("state", "migrate")
    assert again.exit_code == 0
    assert f"of version {VERSION} already" in again.output


def test_a_site_with_files_is_told_what_it_lacks(local: Site, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump(local.model_dump(mode="json", exclude_defaults=True)))
    told = CliRunner().invoke(main, ["--site", str(path), "state", "migrate"])
    assert told.exit_code == 2
    assert "state_database" in told.output


class TestTheDoctor:
    def test_finds_the_database(self, run: Run) -> None:
        assert "answers, and has the tables" in run("doctor").output

    def test_names_what_is_wrong_with_it(self, run: Run, site: Site, server: str) -> None:
        with psycopg.connect(server) as connection:
            table = Identifier(site.site, "alembic_version")
            connection.execute(SQL("UPDATE {} SET version_num = '9999'").format(table))
        told = run("doctor").output
        assert "state database" in told
        assert "tables of version 9999" in told
        assert "journal" not in told

    def test_names_a_right_that_is_missing(self, run: Run, site: Site, server: str) -> None:
        with psycopg.connect(server) as connection:
            holders = Identifier(site.site, "holder")
            connection.execute(SQL("REVOKE INSERT ON {} FROM fabric").format(holders))
        told = run("doctor")
        assert told.exit_code == 1
        assert "permission denied for table holder" in told.output
