"""Inputs that nobody meant: values and texts as a hostile hand would choose and change them."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any


@dataclass(frozen=True)
class Parser:
    """One parser: what makes its inputs, and what reads them."""

    name: str
    make: Callable[[Random], Any]
    parse: Callable[[Any], object]
    """May raise errors of :mod:`fabric_direct.errors`, and no others."""
    share: int = 10
    """Of all inputs: small for a slow parser."""


TEXTS = (
    "",
    " ",
    "x'/><disk type='block'><source dev='/dev/sda'/></disk><x a='",
    "</stamp></metadata><devices/>",
    "]]><!--",
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">]>',
    "../../etc/passwd",
    "/etc/../../x",
    "..",
    "$(reboot)",
    "`reboot`; rm -rf /",
    "a' || reboot #",
    "--help",
    "-oProxyCommand=reboot",
    "{{ 7 * 7 }}",
    "{% include 'domain.xml.j2' %}",
    "--==fabric-direct==",
    "x\n--==fabric-direct==--\n",
    "a: b\n- &x [*x]",
    "!!python/object/apply:os.system [reboot]",
    "&a [*a, *a]",
    "<<: *a",
    "ssh-ed25519 AAAA\nssh-rsa AAAA",
    "line\r\nHeader: x",
    "\x00",
    "\x1b[2J",
    "\u2028",
    "\ud800",
    "\udcff",
    "\U0010ffff",
    "٣",
    "²",
    "NaN",
    "-0",
    "1e400",
    "0x10",
    "9" * 5000,
    "fabric.c" + "9" * 5000 + ".m1.d1",
    "A" * 70_000,
    "[" * 3000,
    '{"a":' * 3000,
    "10.0.0.0/99",
    "::ffff:10.0.0.1",
    "http://[::1",
    "ssh://[::1",
    "0000:25:00.0",
    "fabric-direct TEST/sliver-1",
    "true",
    "null",
    "auto",
    "2001-99-99",
)
_NUMBERS = (0, 1, -1, 255, 65_536, 2**31, -(2**63), 2**64, 10**30, 0.5, 1e308, -0.0)
_EMPTY: tuple[Any, ...] = (None, True, False, [], {}, [[]], [{}], {"": None})
_DEPTH = 4
_CUT = 40
# Characters of a value that may be repeated often.
_SMALL = 4000
_BYTES = b"\x00\x01\x7f\x80\xff\n\r\t '\"<>&[]{}:,-#*!|%\\/"


def any_value(random: Random, depth: int = _DEPTH) -> Any:
    """Return any value that JSON can hold."""
    kind = random.randrange(8 if depth else 5)
    if kind < 5:
        return copy.deepcopy(random.choice(random.choice((TEXTS, _NUMBERS, _EMPTY))))
    size = random.randrange(4)
    if kind == 5:
        return [any_value(random, depth - 1) for _ in range(size)]
    return {random.choice(TEXTS): any_value(random, depth - 1) for _ in range(size)}


def changed(value: Any, random: Random) -> Any:
    """Return a copy of a value with one to three changes, each anywhere in it."""
    made = [copy.deepcopy(value)]
    for _ in range(random.randint(1, 3)):
        _change(made, random)
    return made[0]


def _change(within: Any, random: Random) -> None:
    """Go down to any place, and change what is there."""
    keys = list(within) if isinstance(within, dict) else list(range(len(within)))
    if not keys:
        return
    key = random.choice(keys)
    below = within[key]
    if isinstance(below, dict | list) and below and random.randrange(5):
        _change(below, random)
    else:
        _replace(within, key, random)


def _replace(within: Any, key: Any, random: Random) -> None:
    match random.randrange(7):
        case 0 if isinstance(within, dict):
            del within[key]
        case 1 if isinstance(within, dict):
            within[random.choice(TEXTS)] = within[key]
        case 2:
            within[key] = [copy.deepcopy(within[key]) for _ in range(_times(within[key], random))]
        case 3 if isinstance(within[key], str):
            within[key] = changed_text(within[key], random)
        case 4 if isinstance(within[key], str):
            within[key] += random.choice(TEXTS)
        case _:
            within[key] = any_value(random)


def _times(value: Any, random: Random) -> int:
    """Return how often a value is repeated: a large one not often, as no channel takes so much."""
    return random.choice((1, 2, 200 if len(repr(value)) < _SMALL else 2))


def changed_text(text: str, random: Random) -> str:
    """Return a text with one to four changes."""
    for _ in range(random.randint(1, 4)):
        at, end = sorted(random.randrange(len(text) + 1) for _ in range(2))
        end = min(end, at + _CUT)
        piece = random.choice((random.choice(TEXTS), chr(random.randrange(0xD800)), text[at:end]))
        match random.randrange(4):
            case 0:
                text = text[:at] + piece + text[at:]
            case 1:
                text = text[:at] + text[end:]
            case 2:
                text = text[:at] + piece + text[end:]
            case _:
                text = text[:end] + text[at:end] * random.choice((1, 2, 50)) + text[end:]
    return text


def changed_bytes(data: bytes, random: Random) -> bytes:
    """Return bytes with one to six changes: bits, cuts, repetitions."""
    made = bytearray(data)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(made) + 1)
        match random.randrange(4):
            case 0 if at < len(made):
                made[at] ^= 1 << random.randrange(8)
            case 1:
                del made[at : at + random.randrange(_CUT)]
            case 2:
                made[at:at] = made[at : at + random.randrange(_CUT)]
            case _:
                made[at : at + 1] = bytes([random.choice(_BYTES), random.randrange(256)])
    return bytes(made)


def as_json(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value)


def documents(*seeds: Any) -> Callable[[Random], str]:
    """Return what makes documents in JSON, which is YAML: changed values, changed texts, any values."""

    def make(random: Random) -> str:
        seed = random.choice(seeds)
        match random.randrange(4):
            case 0:
                return changed_text(as_json(seed), random)
            case 1:
                return as_json(any_value(random))
        return as_json(changed(seed, random))

    return make


def texts(*seeds: str) -> Callable[[Random], str]:
    """Return what makes texts: changed ones, and any."""

    def make(random: Random) -> str:
        if random.randrange(10) == 0:
            return "".join(random.choice(TEXTS) for _ in range(random.randrange(5)))
        return changed_text(random.choice(seeds), random)

    return make


def streams(*seeds: bytes) -> Callable[[Random], bytes]:
    """Return what makes bytes: changed ones, and any."""

    def make(random: Random) -> bytes:
        if random.randrange(10) == 0:
            return random.randbytes(random.randrange(200))
        return changed_bytes(random.choice(seeds), random)

    return make


def values(*seeds: Any) -> Callable[[Random], Any]:
    """Return what makes values: changed ones, and any."""

    def make(random: Random) -> Any:
        return changed(random.choice(seeds), random) if random.randrange(8) else any_value(random)

    return make
