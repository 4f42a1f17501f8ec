"""OpenFlow 1.3, as far as limits need it: meters, and flows through one to the normal switching.

Each message is its type and its body. The numbers are those of ``openflow.h``, specification 1.3.5.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

Message = tuple[int, bytes]

_HEADER = struct.Struct("!BBHI")  # version, type, length, number
_VERSION = 4
_HELLO, _ERROR, _FLOW_MOD, _ASK, _TOLD, _BARRIER, _METER_MOD = 0, 1, 14, 18, 19, 20, 29
_FLOWS, _METERS, _METER_FEATURES = 1, 10, 11  # what a multipart message is about
_ABOUT = struct.Struct("!H6x")
_NONE = 0xFFFFFFFF  # no buffer; any port, group, meter
_FLOW_STATS = struct.Struct("!H10xH34x")  # length, priority; then match and instructions
_METER_CONFIG = struct.Struct("!HHI")  # length, flags, number; then bands
_BAND = struct.Struct("!HHII4x")  # type, length, rate, burst
_DROP = 1
_KBPS_AND_BURST = 1 | 4
_NORMAL = 0xFFFFFFFA


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """A flow entry: its priority, and its match and instructions as OpenFlow encodes them."""

    priority: int
    rule: bytes
    """Match and instructions."""


@dataclass(frozen=True, slots=True)
class Meter:
    """A limit: what is too much is dropped. All 0 if it works in another way."""

    rate: int
    """kbit/s."""
    burst: int
    """kbit."""


READ: tuple[Message, ...] = (
    # of flows: all tables, ports, groups and cookies; an empty match
    (_ASK, _ABOUT.pack(_FLOWS) + struct.pack("!B3xII4xQQHH4x", 0xFF, _NONE, _NONE, 0, 0, 1, 4)),
    (_ASK, _ABOUT.pack(_METERS) + struct.pack("!I4x", _NONE)),
)
"""Asks for all flows and meters of a bridge."""
FEATURES: Message = (_ASK, _ABOUT.pack(_METER_FEATURES))
"""Asks what meters a bridge can have."""


def through_meter(priority: int, meter: int, port: int, vlan: int | None = None) -> FlowEntry:
    """Return the flow that passes what is received on a port through a meter.

    :param vlan: of its frames; 0 for those without one. All if absent.
    """
    fields = struct.pack("!HBBI", 0x8000, 0 << 1, 4, port)
    if vlan is not None:
        fields += struct.pack("!HBBH", 0x8000, 6 << 1, 2, vlan and vlan | 0x1000)
    match = struct.pack("!HH", 1, 4 + len(fields)) + fields
    metered = struct.pack("!HHI", 6, 8, meter)
    switched = struct.pack("!HH4x", 4, 24) + struct.pack("!HHIH6x", 0, 16, _NORMAL, 0)
    return FlowEntry(priority, match + bytes(-len(match) % 8) + metered + switched)


def add_flow(flow: FlowEntry) -> Message:
    """Return the message that adds a flow, in place of one of the same match and priority."""
    head = struct.pack("!QQBBHHHIIIH2x", 0, 0, 0, 0, 0, 0, flow.priority, _NONE, _NONE, _NONE, 0)
    return _FLOW_MOD, head + flow.rule


def set_meter(number: int, meter: Meter, *, there: bool) -> Message:
    """Return the message that makes a meter, or changes one that is there."""
    band = _BAND.pack(_DROP, _BAND.size, meter.rate, meter.burst)
    return _METER_MOD, struct.pack("!HHI", int(there), _KBPS_AND_BURST, number) + band


def delete_meter(number: int) -> Message:
    """Return the message that deletes a meter with its flows."""
    return _METER_MOD, struct.pack("!HHI", 2, 0, number)


def request(*messages: Message) -> bytes:
    """Return what a bridge is sent on a new connection: messages, and a barrier behind them."""
    numbered = enumerate(((_HELLO, b""), *messages, (_BARRIER, b"")))
    return b"".join(
        _HEADER.pack(_VERSION, kind, _HEADER.size + len(body), number) + body
        for number, (kind, body) in numbered
    )


class OpenFlowError(Exception):
    """The bridge answers by an error."""


def flows(answer: bytes) -> frozenset[FlowEntry]:
    """Return the flows that a bridge has told.

    :raises ValueError: if it is no answer.
    """
    parts = [part for body in _told(answer, _FLOWS) for part in _parts(body, _FLOW_STATS)]
    return frozenset(
        FlowEntry(_FLOW_STATS.unpack_from(part)[1], part[_FLOW_STATS.size :]) for part in parts
    )


def meters(answer: bytes) -> dict[int, Meter]:
    """Return the meters that a bridge has told, by number.

    :raises ValueError: if it is no answer.
    """
    parts = [part for body in _told(answer, _METERS) for part in _parts(body, _METER_CONFIG)]
    return {_METER_CONFIG.unpack_from(part)[2]: _meter(part) for part in parts}


def most_meters(answer: bytes) -> int:
    """Return how many meters a bridge can have, as it has told.

    :raises ValueError: if it is no answer.
    """
    for body in _told(answer, _METER_FEATURES):
        return int.from_bytes(body[:4], "big")
    raise ValueError("no features of meters")


def _meter(part: bytes) -> Meter:
    flags, bands = _METER_CONFIG.unpack_from(part)[1], part[_METER_CONFIG.size :]
    if flags != _KBPS_AND_BURST or len(bands) != _BAND.size:
        return Meter(0, 0)
    kind, _, rate, burst = _BAND.unpack(bands)
    return Meter(rate, burst) if kind == _DROP else Meter(0, 0)


def check(answer: bytes) -> None:
    """Raise Refused if an answer has an error.

    :raises ValueError: if it is no answer.
    """
    for kind, body in _messages(answer):
        if kind == _ERROR:
            if len(body) < 4:
                raise ValueError("an error without a code")
            raise OpenFlowError(
                "OpenFlow error {}, code {}".format(*struct.unpack_from("!HH", body))
            )


def _told(answer: bytes, about: int) -> Iterator[bytes]:
    """Yield the bodies of the parts of an answer."""
    for kind, body in _messages(answer):
        if kind == _TOLD and body[:2] == about.to_bytes(2, "big"):
            yield body[_ABOUT.size :]


def _messages(answer: bytes) -> Iterator[Message]:
    while answer:
        if len(answer) < _HEADER.size:
            raise ValueError("half a message")
        _, kind, length, _ = _HEADER.unpack_from(answer)
        yield kind, answer[_HEADER.size : length]
        answer = answer[max(length, _HEADER.size) :]


def _parts(body: bytes, head: struct.Struct) -> Iterator[bytes]:
    """Yield the parts of a body, which begin with their length."""
    while body:
        length = int.from_bytes(body[:2], "big")
        if not head.size <= length <= len(body):
            raise ValueError("an invalid length")
        yield body[:length]
        body = body[length:]
