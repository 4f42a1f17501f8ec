"""What a switch's daemon is asked and told at its sockets, against a scripted one."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from fabric_direct.calls.deadline import Deadline, bounded
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.drivers.ovs import openflow
from fabric_direct.drivers.ovs.layout import InterfaceLimit
from fabric_direct.drivers.ovs.openflow import Meter
from fabric_direct.drivers.ovs.switch import MetersAndFlows, OvsSwitch
from fabric_direct.errors import DriverError, NotVerified, TimedOut, Unreachable

Serve = Callable[..., list[bytes]]
LIMIT = InterfaceLimit("fdp-1", "p1", "a1", tag=100, rate=10, burst=2000)
NUMBERS = {"p1": 65000, "a1": 2}
HELLO, BARRIER = "0400000800000000", "0415000800000009"
# As `ovs-ofctl -O OpenFlow13 ofp-print` reads them.
ADD_METER = "041d00200000000100000005000000c90001001000002710000007d000000000"
DELETE_METER = "041d00100000000100020000000000ca"
PORTS = (
    "netdev@ovs-netdev: hit:0 missed:0\n  fdp-1:\n    p1 65000/3: (system)\n    a1 2/none: (patch)"
)
RULE = (
    "00010012800000040000fde880000c021064000000000000"  # in_port=65000,dl_vlan=100
    "00060008000000c9000400180000000000000010fffffffa0000000000000000"  # meter:201,NORMAL
)
ADD_FLOW = "040e006800000001" + "0" * 44 + "03e8" + "f" * 24 + "00000000" + RULE
FLOWS = "04130078000000010001000000000000" + "0068" + "0" * 20 + "03e8" + "0" * 68 + RULE
METERS = "041300280000000200" + "0a000000000000" + "00180005000000c9" + ADD_METER[32:]


@pytest.fixture
def rundir(tmp_path: Path) -> Path:
    (tmp_path / "ovs-vswitchd.pid").write_text("7\n")
    return tmp_path


@pytest.fixture
def switch(rundir: Path) -> OvsSwitch:
    return OvsSwitch("sw1", LocalHost(), str(rundir), 5)


@pytest.fixture
def serve(rundir: Path) -> Iterator[Serve]:
    """Return what starts a daemon that answers one request in parts, and hangs up.

    It returns the list that what it receives is put into.
    """
    threads: list[Thread] = []

    def serve(name: str, *parts: bytes) -> list[bytes]:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(rundir / name))
        listening.listen()
        received: list[bytes] = []

        def run() -> None:
            with listening, listening.accept()[0] as peer:
                received.append(peer.recv(65536))
                for part in parts:
                    peer.sendall(part)

        threads.append(Thread(target=run))
        threads[-1].start()
        return received

    yield serve
    for thread in threads:
        thread.join()


def openflow_answer(*messages: str) -> bytes:
    return bytes.fromhex("".join((HELLO, *messages, BARRIER)))


def told(**values: object) -> bytes:
    return json.dumps({"id": 0, "result": None, "error": None} | values).encode()


def sent(message: openflow.Message) -> str:
    """Return a message without the greeting before it and the barrier behind it."""
    return openflow.request(message)[8:-8].hex()


def limits(meter: Meter) -> MetersAndFlows:
    """Return what a bridge has whose port and patch are limited by such meters."""
    into = openflow.through_meter(1000, 201, 65000, 100)
    out = openflow.through_meter(1000, 202, 2)
    return MetersAndFlows({201: meter, 202: meter}, frozenset({into, out}))


# --- OpenFlow


def test_messages_are_those_of_the_specification() -> None:
    flow = openflow.through_meter(1000, 201, 65000, 100)

    assert sent(openflow.set_meter(201, Meter(10_000, 2000), there=False)) == ADD_METER
    assert sent(openflow.delete_meter(202)) == DELETE_METER
    assert sent(openflow.add_flow(flow)) == ADD_FLOW


def test_limits_are_read_back_as_they_were_made(switch: OvsSwitch, serve: Serve) -> None:
    answer = openflow_answer(FLOWS, METERS)
    serve("fdp-1.mgmt", answer[:11], answer[11:50], answer[50:])

    found = switch.limits("fdp-1")

    assert found.meters == {201: Meter(10_000, 2000)}
    assert found.flows == {openflow.through_meter(1000, 201, 65000, 100)}
    assert not found.enforces(LIMIT, NUMBERS)  # in one direction alone


def test_a_limit_is_in_force_once_what_was_missing_is_there() -> None:
    nothing, whole = MetersAndFlows({}, frozenset()), limits(Meter(10_000, 2000))

    assert len([*nothing.missing(LIMIT, NUMBERS)]) == 4
    assert whole.enforces(LIMIT, NUMBERS)
    assert not whole.enforces(LIMIT, {"p1": 65000})


def test_of_another_bandwidth_only_the_meters_change() -> None:
    slower, wanted = limits(Meter(5000, 1000)), Meter(10_000, 2000)

    assert [*slower.missing(LIMIT, NUMBERS)] == [
        openflow.set_meter(201, wanted, there=True),
        openflow.set_meter(202, wanted, there=True),
    ]


@pytest.mark.parametrize(
    ("kind", "other"), [("00180005", "00180006"), ("c900010010", "c900020010")]
)
def test_a_meter_of_another_kind_enforces_nothing(
    switch: OvsSwitch, serve: Serve, kind: str, other: str
) -> None:
    serve("fdp-1.mgmt", openflow_answer(METERS.replace(kind, other)))

    assert switch.limits("fdp-1").meters == {201: Meter(0, 0)}


def test_what_the_bridge_refuses_is_an_error(switch: OvsSwitch, serve: Serve) -> None:
    serve("fdp-1.mgmt", openflow_answer("0401001000000001000c000300000000"))

    with pytest.raises(DriverError, match="OpenFlow error 12, code 3"):
        switch.limits("fdp-1")


@pytest.mark.parametrize(
    "wrong",
    [
        FLOWS.replace("0068" + "0" * 20, "0000" + "0" * 20),
        FLOWS.replace("0068" + "0" * 20, "ffff" + "0" * 20),
        METERS.replace("00180005", "00040005"),
        "0401000a00000001000c",
    ],
)
def test_an_answer_that_is_none_is_an_error(switch: OvsSwitch, serve: Serve, wrong: str) -> None:
    serve("fdp-1.mgmt", openflow_answer(wrong))

    with pytest.raises(DriverError, match="invalid answer"):
        switch.limits("fdp-1")


def test_a_bridge_that_is_not_there_or_hangs_up_is_unreachable(
    switch: OvsSwitch, serve: Serve
) -> None:
    with pytest.raises(Unreachable):
        switch.limits("fdp-1")
    serve("fdp-1.mgmt", openflow_answer()[:12])
    with pytest.raises(Unreachable):
        switch.limits("fdp-1")


def test_a_limit_needs_the_services_port(switch: OvsSwitch, serve: Serve) -> None:
    serve("ovs-vswitchd.7.ctl", told(result=PORTS.replace("a1", "a2")))

    with pytest.raises(NotVerified, match="a1 is not in the datapath"):
        switch.enforce(LIMIT)


def test_a_change_without_an_answer_may_still_come(rundir: Path) -> None:
    deadline = Deadline.within(5, unanswered=0)
    impatient = OvsSwitch("sw1", LocalHost(), str(rundir), 0.01)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(rundir / "fdp-1.mgmt"))
        silent.listen()
        with pytest.raises(TimedOut):
            bounded(impatient, "switch", deadline, 5)._flow("fdp-1", openflow.delete_meter(201))

    assert [call.what for call in deadline.given_up] == ["the limits of fdp-1 on sw1"]


def test_of_a_change_only_its_bridge_is_asked_again(switch: OvsSwitch, serve: Serve) -> None:
    for bridge in ("fdp-1", "fdp-2"):  # each answers once
        serve(f"{bridge}.mgmt", openflow_answer(FLOWS, METERS))

    with ReadCache().active():
        one, other = (switch.limits(bridge) for bridge in ("fdp-1", "fdp-2"))
        assert switch.limits("fdp-1") is one
        with pytest.raises(Unreachable):
            switch.unlimit("fdp-1", 100)

        assert switch.limits("fdp-2") is other
        with pytest.raises(Unreachable):
            switch.limits("fdp-1")


# --- what ovs-appctl would be told


def test_ports_are_those_of_the_datapath(switch: OvsSwitch, serve: Serve) -> None:
    answer = told(result=PORTS)
    received = serve("ovs-vswitchd.7.ctl", answer[:30], answer[30:])

    assert switch.ports() == {"fdp-1": NUMBERS}
    assert json.loads(received[0]) == {"id": 0, "method": "dpif/show", "params": []}


def test_a_command_that_is_refused_is_an_error_in_the_daemons_words(
    switch: OvsSwitch, serve: Serve
) -> None:
    serve("ovs-vswitchd.7.ctl", told(error="no such bridge"))

    with pytest.raises(DriverError, match="no such bridge"):
        switch.outputs("fdp-1", "p1", 100)


def test_a_daemon_that_was_killed_is_unreachable(switch: OvsSwitch, serve: Serve) -> None:
    with pytest.raises(Unreachable):
        switch.ports()
    serve("ovs-vswitchd.7.ctl", told(result="")[:10])
    with pytest.raises(Unreachable):
        switch.ports()
