"""One connection for each URI and process: shared by threads, never by processes, with our errors."""

import multiprocessing
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

import libvirt
import pytest

from fabric_direct.drivers.libvirt.connection import connections as module
from fabric_direct.drivers.libvirt.connection.connections import connect, translated
from fabric_direct.drivers.libvirt.domains.unplug import detach
from fabric_direct.errors import DriverError, NotFound, Unreachable, Unsupported

URI = "qemu:///system"
# The same daemon; what other tests hold is a connection to the first.
MINE = "qemu+unix:///system"
DAEMON = Path("/run/libvirt/libvirt-sock")
NOBODY = UUID(int=0xFD7E57)
DOMAIN = (
    "<domain type='qemu'><name>{}</name><memory unit='MiB'>64</memory>"
    "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
)


@pytest.fixture
def connection() -> libvirt.virConnect:
    try:
        return connect(URI)
    except Unreachable as error:
        pytest.skip(f"needs libvirtd: {error}")


@pytest.fixture
def domain(connection: libvirt.virConnect) -> Iterator[libvirt.virDomain]:
    """A domain that is defined and never started."""
    made = connection.defineXML(DOMAIN.format(f"fdtest-{uuid4().hex[:8]}"))
    yield made
    made.undefine()


def test_a_process_has_one_connection_for_a_uri(connection: libvirt.virConnect) -> None:
    assert connect(URI) is connection


@pytest.mark.usefixtures("connection")
def test_a_connection_that_was_closed_is_replaced() -> None:
    mine = connect(MINE)
    uri = mine.getURI()
    mine.close()

    assert connect(MINE) is not mine
    assert connect(MINE).getURI() == uri


class Relay:
    """A socket in front of libvirtd's, whose connections can be cut, or stand still."""

    def __init__(self, path: Path) -> None:
        self.ends: list[socket.socket] = []
        self.flows = threading.Event()
        self.flows.set()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, far = self.listener.accept()[0], socket.socket(socket.AF_UNIX)
                far.connect(str(DAEMON))
                self.ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self.flows.wait()
                sink.sendall(data)

    def cut(self) -> None:
        for end in self.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.ends.clear()


@pytest.fixture
def relay(tmp_path: Path, connection: libvirt.virConnect) -> Iterator[tuple[Relay, str]]:
    if not DAEMON.exists():
        pytest.skip(f"needs libvirtd's socket {DAEMON}")
    made = Relay(tmp_path / "libvirt")
    yield made, f"qemu+unix:///system?socket={tmp_path}/libvirt"
    made.cut()
    made.listener.close()


def test_a_connection_that_broke_is_an_error_for_its_user_and_replaced_for_the_next(
    relay: tuple[Relay, str],
) -> None:
    between, uri = relay
    first = connect(uri)
    between.cut()

    with pytest.raises(Unreachable), translated("ask", uri):
        first.listAllDomains()

    second = connect(uri)
    assert second is not first
    assert second.listAllDomains() is not None


def test_calls_of_many_threads_outlast_a_peer_that_says_nothing_for_a_while(
    relay: tuple[Relay, str],
) -> None:
    between, uri = relay
    mine = connect(uri)
    between.flows.clear()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(mine.listAllDomains) for _ in range(4)]
        # libvirt's keepalive would end it after 20 s, and crash the process when the peer goes on.
        assert wait(asked, timeout=22).done == set()
        between.flows.set()
        answers = [each.result(30) for each in asked]

    assert len(answers) == 4
    assert connect(uri) is mine


def test_many_threads_share_one_connection(connection: libvirt.virConnect) -> None:
    def ask(_: int) -> tuple[libvirt.virConnect, str]:
        mine = connect(URI)
        return mine, mine.getURI()

    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(ask, range(200)))

    assert answers == {(connection, URI)}


def test_events_arrive(connection: libvirt.virConnect) -> None:
    heard = threading.Event()
    name = f"fdtest-{uuid4().hex[:8]}"

    def hear(_: object, domain: libvirt.virDomain, *__: object) -> None:
        if domain.name() == name:
            heard.set()

    number = connection.domainEventRegisterAny(
        None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, hear, None
    )
    try:
        connection.defineXML(DOMAIN.format(name)).undefine()

        assert heard.wait(30)
    finally:
        connection.domainEventDeregisterAny(number)


def work(name: str) -> tuple[str, bool]:
    """What a pool worker does: open a connection, hear events, detach what is not there."""
    mine = connect(URI)
    found = mine.lookupByName(name)
    detach(mine, found, "ua-fdtest-absent-0", timeout=1, where=URI)
    heard = threading.Event()
    event = libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE
    number = mine.domainEventRegisterAny(None, event, lambda *_: heard.set(), None)
    mine.defineXML(DOMAIN.format(f"{name}-{os.getpid()}")).undefine()
    heard.wait(30)
    mine.domainEventDeregisterAny(number)
    return found.name(), heard.is_set()


def test_a_forked_worker_and_its_parent_both_go_on_working(
    connection: libvirt.virConnect, domain: libvirt.virDomain
) -> None:
    name = domain.name()
    context = multiprocessing.get_context("fork")
    for _ in range(4):
        # One call each: libvirt may lose the events of a callback that follows another at once.
        with ProcessPoolExecutor(1, context) as pool:
            assert pool.submit(work, name).result() == (name, True)
        # In between, and so on the connection that the workers inherited.
        assert connect(URI) is connection
        assert domain.name() == name

    assert connection.isAlive()
    assert domain.XMLDesc(0)


def test_a_fork_in_the_midst_of_other_threads_calls_harms_nobody(
    connection: libvirt.virConnect,
) -> None:
    over = threading.Event()

    def call() -> None:
        while not over.is_set():
            connect(URI).listAllDomains()

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(30):
            child = context.Process(target=connect, args=(URI,))
            child.start()
            child.join(20)
            assert child.exitcode == 0
    finally:
        child.kill()
        over.set()
        for caller in callers:
            caller.join()
    assert connection.isAlive()


def test_a_child_that_never_uses_libvirt_ends_without_harm(
    connection: libvirt.virConnect,
) -> None:
    child = multiprocessing.get_context("fork").Process(target=os.getpid)
    child.start()
    child.join()

    assert child.exitcode == 0
    assert connection.isAlive()
    assert connection.getURI() == URI


def test_a_fork_while_another_thread_holds_the_lock_does_not_stop_the_child(
    connection: libvirt.virConnect,
) -> None:
    context = multiprocessing.get_context("fork")
    with module._lock:
        child = context.Process(target=connect, args=(URI,))
        child.start()
        child.join(60)

    assert child.exitcode == 0


def test_a_process_ends_in_the_midst_of_its_threads_calls(
    connection: libvirt.virConnect,
) -> None:
    code = f"""
        import threading
        from fabric_direct.drivers.libvirt.connection.connections import connect

        def call():
            while True:
                connect({URI!r}).listAllDomains()

        connect({URI!r})
        for _ in range(3):
            threading.Thread(target=call, daemon=True).start()
    """
    for _ in range(5):
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], timeout=60, check=False
        )
        assert ended.returncode == 0


def test_what_is_not_there_is_not_found(connection: libvirt.virConnect) -> None:
    words = r"cannot find it \(qemu:///system\): .*no domain"

    with pytest.raises(NotFound, match=words) as refusal, translated("find it", URI):
        connection.lookupByUUID(NOBODY.bytes)

    assert isinstance(refusal.value.__cause__, libvirt.libvirtError)


def test_what_libvirt_refuses_keeps_its_words(connection: libvirt.virConnect) -> None:
    with pytest.raises(DriverError, match="cannot define it"), translated("define it", URI):
        connection.defineXML("<domain type='qemu'><name>fdtest-bad</name></domain>")


def test_what_the_hypervisor_cannot_do_is_unsupported() -> None:
    with pytest.raises(Unsupported), translated("ask", "test:///default"):
        connect("test:///default").listAllSecrets()


def test_a_daemon_that_does_not_listen_is_unreachable(tmp_path: Path) -> None:
    uri = f"qemu+unix:///system?socket={tmp_path}/absent"

    with pytest.raises(Unreachable, match=r"cannot connect to libvirt .*absent.*doctor"):
        connect(uri)
