"""`make test-trust`: all parts in one run. What is counted as wrong must be 0 everywhere."""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence

from tests.trust import anywhere, crowd, hostile, http, http_scenes, lives, page
from tests.trust.matrix import SCENES, judge, points, without_gaps
from tests.trust.verdicts import spread, told

_INPUTS, _ALL_INPUTS = 20_000, 1_000_000
"""Hostile inputs: half a minute, and the whole."""
_REQUESTS = 61
"""One of so many points of requests to a cloud is tried; of the whole each is."""


def main(given: Sequence[str] | None = None) -> int:
    """Run the parts that are asked for, and print their figures; return 1 if one is not zero, or 0."""
    asked = argparse.ArgumentParser(prog="python -m tests.trust", description=__doc__)
    asked.add_argument(
        "part", nargs="*", help=f"{', '.join(PARTS | ON_REQUEST)}; absent: {', '.join(PARTS)}"
    )
    asked.add_argument("--whole", action="store_true", help="the whole, not the share of CI")
    asked.add_argument("--libvirt", action="store_true", help="lives on this machine's libvirt")
    asked.add_argument("--inputs", type=int, help="hostile inputs in all")
    asked.add_argument("--seed", type=int, default=0, help="another one gives other inputs")
    args = asked.parse_args(given)
    if unknown := set(args.part) - (PARTS | ON_REQUEST).keys():
        asked.error(f"there is no part {', '.join(sorted(unknown))}")
    good = [_timed(name, args) for name in args.part or PARTS]
    return int(not all(good))


def _timed(name: str, args: argparse.Namespace) -> bool:
    began = time.monotonic()
    good = (PARTS | ON_REQUEST)[name](args)
    print(f"{name}: {time.monotonic() - began:.0f} s\n")  # noqa: T201
    return good


# --- every call that can fail


def _matrix(_: argparse.Namespace) -> bool:
    """Try every point, and write what was found into the page."""
    chosen = [point for name in SCENES for point in without_gaps(points(name))]
    verdicts = spread(judge, chosen, chunk=8)
    page.write(verdicts)
    return told(SCENES, verdicts)


# --- hostile input


def _hostile(args: argparse.Namespace) -> bool:
    """Feed the parsers, and print what came of it."""
    inputs = args.inputs or (_ALL_INPUTS if args.whole else _INPUTS)
    lots = hostile.lots(inputs, seed=args.seed)
    figures = hostile.together(spread(hostile.run_lot, lots, chunk=1))
    _print_figures(figures)
    return not any(each.crashes or each.slow for each in figures.values())


def _print_figures(figures: dict[str, hostile.Figures]) -> None:
    print(f"{'':28}{'inputs':>9}{'refused':>9}{'crashes':>9}{'slow':>6}{'a second':>10}")  # noqa: T201
    for name, of in figures.items():
        print(f"{name:28}{of.inputs:9}{of.refused:9}{of.crashes:9}{of.slow:6}{of.rate:10.0f}")  # noqa: T201
    for of in figures.values():
        for example in of.examples:
            print(example)  # noqa: T201
    print(f"{sum(of.inputs for of in figures.values())} inputs")  # noqa: T201


# --- requests to a cloud


def _http(args: argparse.Namespace) -> bool:
    chosen = [point for name in http_scenes.SCENES for point in http.points(name)]
    chosen = chosen[:: 1 if args.whole else _REQUESTS]
    return told(http_scenes.SCENES, spread(http.judge, chosen, chunk=4))


# --- from anywhere, many at once, many after each other


def _anywhere(args: argparse.Namespace) -> bool:
    return anywhere.main(10_000 if args.whole else 200)


def _crowd(_: argparse.Namespace) -> bool:
    return crowd.main()


def _lives(args: argparse.Namespace) -> bool:
    if args.libvirt:
        return lives.main(200, libvirt=True)
    return lives.main(2000 if args.whole else 250)


# --- real substrates


def _real(place: str) -> Callable[[argparse.Namespace], bool]:
    """Return what tries every point of a real substrate."""

    def part(_: argparse.Namespace) -> bool:
        from tests.trust import places, real  # noqa: PLC0415 - needs libvirt and a cloud's library

        with getattr(places, place)() as found:
            return real.main(found)

    return part


PARTS: dict[str, Callable[[argparse.Namespace], bool]] = {
    "hostile": _hostile,
    "http": _http,
    "matrix": _matrix,
    "anywhere": _anywhere,
    "lives": _lives,
}
ON_REQUEST: dict[str, Callable[[argparse.Namespace], bool]] = {
    "crowd": _crowd,
    "libvirt": _real("libvirt_place"),
    "openstack": _real("openstack_place"),
    "site": _real("site_place"),
}
"""Each part prints its figures and returns whether all of them are as they must be."""


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
