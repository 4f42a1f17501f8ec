"""The fixtures for tests of others, as pytest gives them to a test."""

import os
import re
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]
PAGES = "".join((ROOT / page).read_text() for page in ("docs/library.md", "docs/testing.md"))
EXAMPLES = [
    text for text in re.findall(r"```python\n(.*?)```", PAGES, re.DOTALL) if "def test_" in text
]
STRICT = ("-W", "error", "-p", "fabric_direct.pytest_plugin")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load no plugins but those that are named."""
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def test_the_examples_of_the_pages_pass(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(**{f"test_{n}": text for n, text in enumerate(EXAMPLES)})

    result = pytester.runpytest_subprocess(*STRICT)

    assert len(EXAMPLES) == 4
    result.assert_outcomes(passed=9)


def test_each_fixture_does_what_it_says(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from fabric_direct import HandlerProcessor, SliverRef, Status, load_site
        from fabric_direct.drivers.fake import substrate

        def test_vms_and_nets_are_made(fabric_processor, fabric_fakes, fabric_vm, fabric_net):
            gpu, vf = {"type": "GPU", "id": "gpu"}, {"type": "SharedNIC", "id": "vf"}
            wanted = [fabric_vm(), fabric_vm(components=[gpu, vf]), fabric_net()]
            made = [future.result() for future in fabric_processor.create_all(wanted)]
            assert [outcome.error for outcome in made] == [None] * 3
            assert [sliver.id for sliver in wanted] == ["vm-1", "vm-2", "net-1"]
            assert fabric_fakes.servers.keys() == {"vm-1", "vm-2"}

        def test_nodes_are_given_away(fabric_processor, fabric_fakes, fabric_metal):
            wanted = [fabric_metal(), fabric_metal(resource_class="large"), fabric_metal()]
            made = [fabric_processor.create(each).result() for each in wanted]
            assert [outcome.status for outcome in made[:2]] == [Status.DONE] * 2, made
            assert made[2].error.kind == "NoHost"
            assert fabric_fakes.bare_metal["rack1-1"].sliver == "metal-2"
            assert fabric_processor.delete(wanted[0]).result().ok

        def test_each_test_has_a_site_of_its_own(fabric_fakes, fabric_vm, tmp_path):
            assert not fabric_fakes.servers
            assert fabric_vm().id == "vm-1"
            assert not list(tmp_path.iterdir())

        def test_nothing_that_hangs_is_waited_for_as_at_a_real_site(fabric_site):
            limits = fabric_site.limits.model_dump(exclude={"unanswered"})
            assert max(filter(None, limits.values())) <= 20

        def test_a_file_is_the_same_site(fabric_processor, fabric_vm, fabric_site_file):
            assert fabric_processor.create(fabric_vm()).result().ok
            with HandlerProcessor(load_site(fabric_site_file)) as other:
                assert other.probe(SliverRef(id="vm-1")).result().observed.cores == 1

        def test_a_call_that_hangs_is_given_up(fabric_processor, fabric_fakes, fabric_vm):
            fabric_fakes.fault("compute.find", kind="hang")
            assert fabric_processor.create(fabric_vm()).result().status is Status.FAILED
        """
    )

    result = pytester.runpytest_subprocess(*STRICT)

    result.assert_outcomes(passed=6)


def test_a_fault_that_no_call_meets_fails_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from fabric_direct.drivers.fake import substrate

        def test_of_nothing(fabric_fakes):
            fabric_fakes.fault("volume.create", kind="lie")
        """
    )

    result = pytester.runpytest_subprocess(*STRICT)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*no call met the fault*: volume.create (lie)"])
