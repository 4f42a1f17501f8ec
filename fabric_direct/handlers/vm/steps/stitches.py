"""Stitches: noted before the sliver that names the other end is made, forgotten when it is gone."""

from collections.abc import Callable
from functools import partial

from fabric_direct.engine.removal import Removal
from fabric_direct.engine.step import Step
from fabric_direct.model import Finding
from fabric_direct.state.stitches import Stitch, Stitches


class HoldStitches(Step):
    """Record the sliver's stitches, and check that their other ends still exist.

    What is left of a sliver may still use the other ends: these are not given up then.
    """

    used_later = True

    def __init__(
        self, noted: Stitches, sliver_id: str, wanted: tuple[Stitch, ...], see: Callable[[], object]
    ) -> None:
        """Make the step.

        :param see: raises InvalidSliver if an end has changed; one that is noted does not go any more.
        """
        super().__init__("stitches")
        self._noted, self._id, self._wanted, self._see = noted, sliver_id, wanted, see
        self._before: tuple[Stitch, ...] = ()

    def check(self) -> Finding:
        """Compare what is noted."""
        missing = set(self._wanted) - set(self._noted.of(self._id))
        return Finding.WILL_CREATE if missing else Finding.ALREADY_SO

    def look(self) -> None:
        """Remember what is noted already."""
        self._before = self._noted.of(self._id)

    def make(self) -> None:
        """Note it, and look again whether the ends are there."""
        self._noted.hold(self._wanted)
        self._see()

    def undo(self) -> None:
        """Forget what was noted, and note what was before."""
        there = self._noted.of(self._id)
        self._noted.release(stitch for stitch in there if stitch not in self._before)
        self._noted.hold(self._before)


class ReleaseStitches(Removal):
    """The sliver is stitched to nothing else than it names."""

    def __init__(self, noted: Stitches, sliver_id: str, wanted: tuple[Stitch, ...] = ()) -> None:
        def surplus() -> tuple[Stitch, ...]:
            return tuple(s for s in noted.of(sliver_id) if s not in wanted)

        super().__init__("release stitches", surplus, partial(_release, noted, surplus))


def _release(noted: Stitches, surplus: Callable[[], tuple[Stitch, ...]]) -> None:
    noted.release(surplus())
