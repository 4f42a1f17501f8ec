"""``make check``: which unit tests are of a module."""

from pathlib import Path

import grimp
import pytest

from tests.changed import module, named_like, unit_tests_of


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("fabric_direct", "tests", cache_dir=None)


def test_those_that_import_it(graph: grimp.ImportGraph) -> None:
    found = unit_tests_of(graph, module(Path("fabric_direct/calls/keyed_queue.py")))

    assert found == {"tests.unit.test_keyed_queue"}


def test_those_nearest_to_a_module_that_no_test_imports(graph: grimp.ImportGraph) -> None:
    users = graph.find_modules_that_directly_import("tests.unit.openstack_api")

    assert unit_tests_of(graph, "tests.unit.openstack_api") == {
        name for name in users if name.startswith("tests.unit.test_")
    }


def test_a_test_is_its_own(graph: grimp.ImportGraph) -> None:
    assert unit_tests_of(graph, "tests.unit.test_changed") == {"tests.unit.test_changed"}


@pytest.mark.parametrize(
    "file", ["fabric_direct/cli/sweep.py", "fabric_direct/drivers/nso/__init__.py"]
)
def test_those_named_like_what_is_loaded_by_its_name(graph: grimp.ImportGraph, file: str) -> None:
    assert unit_tests_of(graph, module(Path(file))) == set()
    assert named_like(graph, Path(file)) <= {"tests.unit.test_sweep", "tests.unit.test_nso"}
    assert named_like(graph, Path(file))


def test_none_of_what_is_not_the_library(graph: grimp.ImportGraph) -> None:
    assert unit_tests_of(graph, "Makefile") | named_like(graph, Path("labs/sweep")) == set()
