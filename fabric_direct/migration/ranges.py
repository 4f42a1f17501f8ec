"""Ranges in an inventory's host names: ``w[1:3]``, ``w[01:10:3]``, ``w[a:c]``."""

import re
from collections.abc import Iterator

MOST = 4096
"""Hosts that one name may stand for."""

_RANGE = re.compile(r"\[(\w*):(\w+)(?::(\d+))?\]")


def expand(pattern: str) -> list[str]:
    """Return the names that a pattern stands for, the pattern itself if it has no range.

    :raises ValueError: if a range runs backwards, mixes letters and numbers, or is too long.
    """
    if len(pattern) > 255:
        raise ValueError("is longer than any host's name")
    found = _RANGE.search(pattern)
    if not found:
        return [pattern]
    rest = expand(pattern[found.end() :])
    steps = _steps(found[1] or "0", found[2], int(found[3] or 1))
    if not 0 < len(steps) * len(rest) <= MOST:
        raise ValueError(f"stands for no host, or for more than {MOST}")
    return [f"{pattern[: found.start()]}{step}{end}" for step in steps for end in rest]


def _steps(first: str, last: str, stride: int) -> list[str]:
    if stride < 1:
        raise ValueError("has a range with a step of 0")
    if first.isdecimal() and last.isdecimal():
        return list(_numbers(first, last, stride))
    if len(first) == len(last) == 1 and first.isalpha() and last.isalpha():
        return [chr(code) for code in range(ord(first), ord(last) + 1, stride)]
    raise ValueError("has a range that is neither of numbers nor of single letters")


def _numbers(first: str, last: str, stride: int) -> Iterator[str]:
    width = len(first) if first.startswith("0") and len(first) > 1 else 0
    numbers = range(int(first), int(last) + 1, stride)
    return (str(number).zfill(width) for number in numbers[: MOST + 1])
