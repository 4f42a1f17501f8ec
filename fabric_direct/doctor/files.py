"""Check state, journal, volumes and images: existence and permissions."""

import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from fabric_direct.doctor.diagnosis import Diagnosis, fail, failed, ok, warn
from fabric_direct.doctor.machine import may
from fabric_direct.errors import FabricDirectError
from fabric_direct.model import Operation
from fabric_direct.placement.claims import Claims
from fabric_direct.site.config import Site, StateDatabase
from fabric_direct.state.journal import Journal
from fabric_direct.state.pending_looks import PendingLook, PendingLooks
from fabric_direct.state.site_store import store_of
from fabric_direct.state.sliver_types import SliverTypes

_NEW_KEY = (
    "make one without a passphrase: ssh-keygen -N ''; name it in site.yaml: guest_access.ssh_key"
)


def check_state_dir(path: Path) -> Diagnosis:
    """Check that this user can make it and write there, and nobody else can.

    A directory is made, and removed again: permissions alone do not tell of a link to nowhere, a file
    system that takes no files, or a name that is too long.
    """
    subject, path = "state directory", path.absolute()
    try:
        there = _nearest(path)
        _try_to_make(there, path)
    except OSError as error:
        remedy = "let this user write there, or name another state_dir in site.yaml"
        return fail(subject, f"cannot write to {path}: {error.strerror}", remedy)
    if there != path:
        return ok(subject, f"{path} will be made")
    if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return fail(subject, f"{path} can be written to by others", f"chmod go-w {path}")
    return ok(subject, str(path))


def check_state_database(site: Site) -> Diagnosis:
    """Check that the database of the state answers, and has the tables that we use and may write."""
    subject, remedy = "state database", "see state_database of site.yaml"
    try:
        with store_of(site).exclusive("doctor", "the lock of a check", timeout=site.limits.call):
            pass
    except FabricDirectError as error:
        return failed(subject, error, remedy)
    return ok(subject, "answers, and has the tables that are used here")


def check_conductors(site: Site, settings: StateDatabase) -> Diagnosis:
    """Check that conductors run, and that their keys can be read."""
    subject = "conductors"
    # Here, because psycopg may be missing.
    from fabric_direct.operations.signatures import RequestKeys  # noqa: PLC0415
    from fabric_direct.state.postgresql.queue import queue_of  # noqa: PLC0415

    try:
        RequestKeys(site.conductors.key_file if site.conductors else None)
        there = queue_of(site.site, settings).conductors()
    except FabricDirectError as error:
        return failed(subject, error, "see conductors of site.yaml")
    if not there:
        return warn(
            subject, "none runs: operations wait for one", "start one: fabric-direct conductor"
        )
    machines = ", ".join(f"{each.machine} ({each.slots} at once)" for each in there)
    return ok(subject, f"{len(there)}: {machines}")


def check_guest_key(path: Path) -> Diagnosis:
    """Check the private key by which guests are reached."""
    subject = "guest key"
    try:
        # Here, because paramiko may be missing.
        from fabric_direct.drivers.ssh.login import load_key  # noqa: PLC0415

        key = load_key(path, "it", field="guest_access.ssh_key", remedy=_NEW_KEY)
    except (ImportError, FabricDirectError) as error:
        return failed(subject, error, _NEW_KEY, of=str(path))
    return ok(subject, f"{path}: {key.get_name()}")


def _try_to_make(there: Path, path: Path) -> None:
    with TemporaryDirectory(prefix=".fabric-direct-", dir=there) as tried:
        missing = (part for part in path.relative_to(there).parts if part != "..")
        Path(tried, *missing).mkdir(parents=True, exist_ok=True)


def check_journal(site: Site) -> Diagnosis:
    """Check for operations that a process did not finish, and hosts that a deletion did not look at."""
    journal = Journal(store_of(site))
    looks = PendingLooks(store_of(site), timeout=site.limits.call)
    try:
        unfinished, foreign = journal.unfinished(), journal.foreign()
        begun = {entry.sliver["id"] for entry in unfinished}
        pending = [look for look in looks.all() if look.sliver.id not in begun]
    except FabricDirectError as error:
        return fail("journal", f"{error.what}: {error.why}", "let this user read it")
    if not (unfinished or foreign or pending):
        return ok("journal", "nothing is unfinished")
    found = [f"{u.operation} of {u.sliver['id']} since {u.since}" for u in unfinished]
    found += [_not_settled(look) for look in pending]
    found += [f"{path} is not a valid entry: damaged, or of another version" for path in foreign]
    recover = "if no process is working on it: fabric-direct recover"
    if any(entry.operation is not Operation.DELETE for entry in unfinished):
        recover += ", or recover --undo"
    remove = (
        "delete a file that is not a valid entry when the sliver that it names is as it should be"
    )
    look = "when the host answers again, recover looks there, as the next operation on it does"
    remedies = [recover] * bool(unfinished) + [look] * bool(pending) + [remove] * bool(foreign)
    return warn("journal", ", ".join(found), "; ".join(remedies))


def check_notes(site: Site) -> Iterator[Diagnosis]:
    """Check the notes of slivers: their hosts, what they claim of these, and their types.

    Nothing is yielded of those that are there and whole, or not there.
    """
    limit, store = site.limits.call, store_of(site)
    every: dict[str, Claims | SliverTypes] = {
        "claims on hosts": Claims(store, lifetime=0, timeout=limit),
        "types of slivers": SliverTypes(store, timeout=limit),
    }
    for subject, notes in every.items():
        try:
            notes.check()
        except FabricDirectError as error:
            yield failed(subject, error, of=f"{error.where} is damaged, or cannot be read")


def _not_settled(look: PendingLook) -> str:
    how = "cleared" if look.found else "looked at"
    return f"{look.host} was not {how} when {look.sliver.id} was deleted"


def check_volume_dir(path: Path, user: pwd.struct_passwd | None) -> Diagnosis:
    """Check that QEMU's user can reach the disks."""
    return _not_passable("volumes", path, _nearest(path), user) or ok("volumes", str(path))


def check_image(name: str, path: Path | None, user: pwd.struct_passwd | None) -> Diagnosis:
    """Check that an image's file exists, and QEMU's user can reach it."""
    subject = f"image {name}"
    if path is None:
        return fail(subject, "has no path", f"name its file in site.yaml: images: {name}: path")
    if not path.is_file():
        remedy = "put it there (make demo builds fabric-guest), or fix the path in site.yaml"
        return fail(subject, f"there is no file {path}", remedy)
    wrong = _not_passable(subject, path, path.parent, user)
    return wrong or ok(subject, f"{path}, {path.stat().st_size / 2**20:.0f} MiB")


def _not_passable(
    subject: str, path: Path, directory: Path, user: pwd.struct_passwd | None
) -> Diagnosis | None:
    """Name the first directory on the way that QEMU's user may not search; None if there is none."""
    for way in reversed((directory.resolve(), *directory.resolve().parents)):
        if user and not may(user, way, stat.S_IXOTH):
            found = f"{path}: {user.pw_name} cannot pass through {way}"
            return fail(subject, found, f"chmod o+x {way}")
    return None


def _nearest(path: Path) -> Path:
    """Return the path, or the nearest one above it that is there, be it a link to nowhere."""
    there = path.is_symlink() or path.exists()
    return path if there else _nearest(path.absolute().parent)
