"""Hostile inputs for every parser: arbitrary ones, and valid ones with changes.

:func:`run` feeds them by the number and counts. `test_hostile_input.py` feeds the same parsers a few
inputs that hypothesis chooses: it is handed to them as their :class:`random.Random`.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from fabric_direct.errors import FabricDirectError
from tests.trust import hostile_cloud, hostile_hosts, hostile_texts
from tests.trust.hostile_inputs import Parser

SLOW = 1.0
"""Seconds of the processor that no input may take."""
_BUSY = 10.0
"""How much longer it may take by the clock: the machine may be busy."""
_SHOWN = 20
"""Crashes, and slow inputs, of which each parser keeps the words."""
_LOT = 5_000
"""Inputs that a process is given at once."""


@dataclass
class Figures:
    """What came of the inputs of one parser."""

    inputs: int = 0
    refused: int = 0
    """How many ended with one of the library's own errors; the others were accepted."""
    crashes: int = 0
    """How many ended with any other error."""
    slow: int = 0
    """How many took longer than :data:`SLOW` seconds."""
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)
    """The first crashes and slow inputs, by the seed that makes them again."""

    @property
    def rate(self) -> float:
        """Inputs per second."""
        return self.inputs / self.seconds if self.seconds else 0.0

    def add(self, more: "Figures") -> None:
        """Add the figures of other inputs."""
        for name in ("inputs", "refused", "crashes", "slow", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(more, name))
        self.examples = (self.examples + more.examples)[:_SHOWN]


def parsers(folder: Path, stack: ExitStack) -> tuple[Parser, ...]:
    """Return all parsers.

    :param folder: for files that some of them read.
    :param stack: closes at its end what some of them open.
    """
    return (
        *hostile_texts.parsers(folder),
        *hostile_hosts.parsers(folder),
        *hostile_cloud.parsers(folder, stack),
    )


def run(inputs: int, *, seed: int | str = 0) -> dict[str, Figures]:
    """Feed the parsers so many inputs in all, or a few more, and return the figures of each.

    A slow parser has a smaller share of them.

    :param seed: another one gives other inputs.
    """
    with TemporaryDirectory(prefix="fabric-direct-") as folder, ExitStack() as stack:
        known = parsers(Path(folder), stack)
        shares = sum(parser.share for parser in known)
        return {p.name: fed(p, ceil(inputs * p.share / shares), seed) for p in known}


def lots(inputs: int, *, seed: int) -> list[tuple[int, str]]:
    """Divide a number of inputs among calls of :func:`run_lot`, which other processes can make."""
    number = ceil(inputs / _LOT)
    return [(ceil(inputs / number), f"{seed}/{each}") for each in range(number)]


def run_lot(lot: tuple[int, str]) -> dict[str, Figures]:
    """Feed the parsers a lot."""
    inputs, seed = lot
    return run(inputs, seed=seed)


def together(found: Iterable[dict[str, Figures]]) -> dict[str, Figures]:
    """Return the sums of figures."""
    sums: dict[str, Figures] = {}
    for figures in found:
        for name, more in figures.items():
            sums.setdefault(name, Figures()).add(more)
    return sums


def fed(parser: Parser, inputs: int, seed: int | str) -> Figures:
    """Feed one parser and return its figures."""
    figures, begun = Figures(), time.monotonic()
    for number in range(inputs):
        feed(parser, f"{parser.name} {seed} {number}", figures)
    figures.seconds = time.monotonic() - begun
    return figures


def feed(parser: Parser, seed: str, figures: Figures) -> None:
    """Feed the input that a seed makes, and count what came of it."""
    took, error = _timed(parser, seed)
    if took > SLOW:  # once more: what is read for the first time is imported, too
        took, error = min(_timed(parser, seed), (took, error), key=lambda each: each[0])
    crash, slow = not isinstance(error, FabricDirectError | None), took > SLOW
    figures.inputs += 1
    figures.refused += isinstance(error, FabricDirectError)
    figures.crashes += crash
    figures.slow += slow
    if (crash or slow) and len(figures.examples) < _SHOWN:
        figures.examples.append(f"{seed}: {took:.1f} s, {type(error).__name__}: {error}"[:300])


def _timed(parser: Parser, seed: str) -> tuple[float, Exception | None]:
    given = parser.make(Random(seed))  # noqa: S311 - it makes inputs, no secrets
    begun, worked = time.monotonic(), time.process_time()
    error = _error_of(parser.parse, given)
    took = max(time.process_time() - worked, (time.monotonic() - begun) / _BUSY)
    return took, error


def _error_of(parse: Callable[[Any], object], given: object) -> Exception | None:
    try:
        parse(given)
    except Exception as error:  # noqa: BLE001 - it is counted
        return error
    return None
