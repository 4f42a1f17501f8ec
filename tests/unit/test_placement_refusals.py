"""In which words hosts refuse an instance."""

import pytest

from fabric_direct.placement.plugins import FILTERS
from fabric_direct.placement.refusals import refusals


def test_the_types_of_devices_are_named() -> None:
    said = refusals({"capacity": 0, "devices": 1}, ["GPU", "NVME", "GPU"])
    assert list(said) == ["1 host refused: no free GPU or NVME as asked for (filter: devices)"]


@pytest.mark.parametrize("name", FILTERS)
def test_each_filter_has_words_of_its_own(name: str) -> None:
    (said,) = refusals({name: 2})
    assert said.startswith("2 hosts refused: ")
    assert said.endswith(f" (filter: {name})")


def test_a_filter_of_another_package_is_named() -> None:
    assert list(refusals({"racks": 2})) == ["2 hosts refused: filter racks"]
