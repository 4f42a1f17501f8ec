"""The page of what is promised: its tables are written by the program that has tried it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.trust.matrix import GAPS
from tests.trust.tap import CHANGES, INCOMPLETE
from tests.trust.verdicts import Verdict

PAGE = Path(__file__).parents[2] / "docs/reliability.md"
FAULTS = (*CHANGES, INCOMPLETE)
BEGIN, END = "<!-- matrix: written by `make test-trust` -->", "<!-- end of the matrix -->"


def write(verdicts: Sequence[Verdict]) -> None:
    """Replace what is between the markers of the page."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{matrix(verdicts)}\n\n{_gaps()}\n\n{END}{after}")


def matrix(verdicts: Iterable[Verdict]) -> str:
    """Return the points of each operation and fault, and how many of them are not as promised."""
    ran: Counter[tuple[str, str]] = Counter()
    bad: Counter[tuple[str, str]] = Counter()
    for verdict in verdicts:
        key = (verdict.point.scene, verdict.point.fault)
        ran[key] += 1
        bad[key] += bool(verdict.sentences())
    scenes = list(dict.fromkeys(scene for scene, _ in ran))
    rows = [_row(scene, ran, bad) for scene in scenes]
    head = f"| operation | {' | '.join(FAULTS)} | wrong |\n|---|{'---|' * (len(FAULTS) + 1)}"
    return "\n".join([head, *rows, _total(ran, bad)])


def _row(scene: str, ran: Counter[tuple[str, str]], bad: Counter[tuple[str, str]]) -> str:
    numbers = " | ".join(str(ran[scene, fault] or "") for fault in FAULTS)
    return f"| {scene} | {numbers} | {sum(bad[scene, fault] for fault in FAULTS)} |"


def _total(ran: Counter[tuple[str, str]], bad: Counter[tuple[str, str]]) -> str:
    numbers = (sum(n for (_, f), n in ran.items() if f == fault) for fault in FAULTS)
    every = " | ".join(f"**{number}**" for number in numbers)
    return f"| **{ran.total()} points** | {every} | **{bad.total()}** |"


def _gaps() -> str:
    if not GAPS:
        return "Known gaps: none."
    rows = [
        f"| {scene} | `{method}` | {fault} | {why} |"
        for (scene, method, fault), why in GAPS.items()
    ]
    return "\n".join(
        [
            "Known gaps, left out:",
            "",
            "| operation | call | fault | why |",
            "|---|---|---|---|",
            *rows,
        ]
    )
