"""Plans that are saved, and carried out as they say or not at all."""

import json
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.errors import Refused
from fabric_direct.model import NodeSliver, Operation, Status
from fabric_direct.operations.saved_plan import PlannedSliver, SavedPlan, read_plan
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from tests.outcomes import done, outcomes_of
from tests.trust.scenes import Request, Scene, node, vpn
from tests.unit.test_cli import MORE, VM, Run, Write, run, site, site_path, write
from tests.unit.test_stitching import at, net, to, vnic
from tests.unit.test_stitching import site as stitching_site
from tests.unit.test_stitching import vm as stitched_vm

__all__ = ["run", "site", "site_path", "stitching_site", "write"]

GPU = {"type": "GPU", "id": "gpu"}
MakeVm = Callable[..., NodeSliver]
SCRIPT = "#!/bin/sh\necho open-sesame \x85\u2028\U0001f600\n"
Save = Callable[..., str]


@pytest.fixture
def save(run: Run, write: Write, tmp_path: Path) -> Save:
    """Save a plan of a sliver, or of files, and return its path."""

    def plan(*files: str, **values: Any) -> str:
        path = str(tmp_path / "plan.json")
        result = run("plan", "-o", path, *(files or [write(**values)]))
        assert result.exit_code == 0, result.output
        return path

    return plan


def nic(bandwidth: int) -> dict[str, Any]:
    interface = {"bandwidth": bandwidth}
    return {"id": "nic1", "type": "vNIC", "network": "red", "interface": interface}


def edit(path: str, change: Callable[[Any], object]) -> None:
    """Change the document of a file."""
    document = json.loads(Path(path).read_text())
    change(document)
    Path(path).write_text(json.dumps(document, indent=1))


class TestAPlan:
    def test_is_saved_for_its_user_alone_and_says_what_carries_it_out(
        self, run: Run, write: Write, tmp_path: Path
    ) -> None:
        path = tmp_path / "plan.json"

        result = run("plan", write(), "-o", str(path))

        assert result.exit_code == 0
        assert "will create" in result.stdout
        assert f"Saved. To do it: fabric-direct create --plan {path}" in result.stderr
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_creates_what_it_says(self, run: Run, save: Save, fakes: Substrate) -> None:
        path = save()

        result = run("create", "--plan", path, "--json")

        assert result.exit_code == 0, result.output
        assert [each["status"] for each in outcomes_of(result.stdout)] == ["done"]
        assert list(fakes.servers) == ["vm1"]

    def test_modifies_as_it_says(self, run: Run, write: Write, save: Save) -> None:
        run("create", write())
        path = save(components=MORE)

        result = run("modify", "--plan", path)

        assert result.exit_code == 0, result.output
        assert "nic2" in result.stdout

    def test_has_the_slivers_as_they_were_asked_for(
        self, run: Run, save: Save, write: Write, fakes: Substrate
    ) -> None:
        path = save(boot_script=SCRIPT)

        assert run("create", "--plan", path, write(boot_script=SCRIPT)).exit_code == 0
        assert fakes.servers["vm1"].stamp == NodeSliver(**VM, boot_script=SCRIPT).stamp()

    def test_has_fields_that_were_not_set(self, run: Run, write: Write, save: Save) -> None:
        run("create", write())
        path = save(components=[nic(200), VM["components"][1]])

        assert run("modify", "--plan", path).exit_code == 0

    def test_that_changes_nothing_is_carried_out_too(
        self, run: Run, write: Write, save: Save
    ) -> None:
        run("create", write())

        assert run("modify", "--plan", save()).exit_code == 0

    def test_of_deletions_is_not_saved(self, run: Run, write: Write, tmp_path: Path) -> None:
        result = run("plan", "--delete", "-o", str(tmp_path / "plan.json"), write())

        assert (result.exit_code, "cannot be saved" in result.stderr) == (2, True)

    def test_that_failed_is_not_saved(self, run: Run, write: Write, tmp_path: Path) -> None:
        path = tmp_path / "plan.json"

        result = run("plan", "-o", str(path), write(image="huge"))

        assert result.exit_code == 2
        assert f"{path} was not written: not every sliver could be planned." in result.stderr
        assert not path.exists()

    def test_is_saved_as_json_alone(self, run: Run, write: Write) -> None:
        assert "does not end in .json" in run("plan", "-o", "plan", write()).stderr

    def test_that_cannot_be_written_is_told(self, run: Run, write: Write, tmp_path: Path) -> None:
        result = run("plan", "-o", str(tmp_path / "none/plan.json"), write())

        assert (result.exit_code, "cannot write" in result.stderr) == (2, True)


class TestOfSeveralSlivers:
    @pytest.fixture
    def two(self, write: Write) -> tuple[str, str]:
        return write("a.yaml", id="a"), write("b.yaml", id="b")

    def test_creates_them_in_their_order(
        self, run: Run, save: Save, two: tuple[str, str], fakes: Substrate
    ) -> None:
        result = run("create", "--plan", save(*two), "--json")

        assert [each["sliver"]["id"] for each in outcomes_of(result.stdout)] == ["a", "b"]
        assert set(fakes.servers) == {"a", "b"}

    def test_begins_none_if_one_has_changed(
        self, run: Run, save: Save, two: tuple[str, str], fakes: Substrate
    ) -> None:
        path = save(*two)
        run("create", two[1])

        result = run("create", "--plan", path)

        assert result.exit_code == 2
        assert "the plan for sliver b is outdated: the sliver is there already" in result.stderr
        assert list(fakes.servers) == ["b"]

    def test_that_are_to_be_created_and_modified_is_not_saved(
        self, run: Run, two: tuple[str, str], tmp_path: Path
    ) -> None:
        run("create", two[0])

        result = run("plan", "-o", str(tmp_path / "plan.json"), *two)

        assert result.exit_code == 2
        assert "would create some slivers and modify others: there already: a" in result.stderr


class TestIsRefused:
    def test_if_somebody_created_the_sliver(
        self, run: Run, save: Save, write: Write, fakes: Substrate
    ) -> None:
        path = save()
        run("create", write())
        calls = len(fakes.ports)

        result = run("create", "--plan", path)

        assert result.exit_code == 2
        assert "the sliver is there already" in result.stderr
        assert len(fakes.ports) == calls

    def test_if_somebody_deleted_the_sliver(self, run: Run, save: Save, write: Write) -> None:
        run("create", write())
        path = save(components=MORE)
        run("delete", "vm1")

        result = run("modify", "--plan", path)

        assert result.exit_code == 2
        assert "the sliver is not there any more" in result.stderr

    def test_if_somebody_changed_a_field(self, run: Run, save: Save, write: Write) -> None:
        run("create", write(components=[nic(100)]))
        path = save(components=[nic(200)])
        run("modify", write(components=[nic(150)]))

        result = run("modify", "--plan", path)

        assert result.exit_code == 2
        assert (
            "nic nic1: planned 'will change (bandwidth 100 → 200)', "
            "now 'will change (bandwidth 150 → 200)'. Make the plan again" in result.stderr
        )

    def test_if_something_of_it_appeared(self, run: Run, save: Save, write: Write) -> None:
        run("create", write())
        path = save(components=MORE)
        run("modify", write(components=MORE))

        result = run("modify", "--plan", path)

        assert "port nic2: planned 'will create', now 'already so'" in result.stderr

    def test_if_the_site_changed(
        self, run: Run, save: Save, site_path: Path, fakes: Substrate
    ) -> None:
        path = save()
        values = yaml.safe_load(site_path.read_text())
        values["networks"]["red"]["subnet"] = "10.20.9.0/24"
        site_path.write_text(yaml.safe_dump(values))

        result = run("create", "--plan", path)

        assert result.exit_code == 2
        assert "site.yaml has changed since the plan was made: networks.red" in result.stderr
        assert not fakes.servers

    def test_if_it_is_for_another_site(self, run: Run, save: Save, fakes: Substrate) -> None:
        path = save()
        edit(path, lambda plan: plan.update(site="RENC"))

        result = run("create", "--plan", path)

        assert result.exit_code == 2
        assert "the plan is for site RENC, and this is TEST" in result.stderr
        assert not fakes.servers

    def test_if_the_files_say_something_else(self, run: Run, save: Save, write: Write) -> None:
        path = save(boot_script=SCRIPT)

        result = run("create", "--plan", path, write(boot_script="#!/bin/sh\n"))

        assert result.exit_code == 2
        assert "the plan is for other slivers than the files: vm1: what differs" in result.stderr
        assert "open-sesame" not in result.output

    def test_if_the_files_say_something_else_the_first_difference_is_named(
        self, run: Run, save: Save, write: Write
    ) -> None:
        path = save()

        result = run("create", "--plan", path, write(name="other"))

        assert result.exit_code == 2
        assert "other slivers than the files: vm1: name node → other. " in result.stderr

    def test_if_it_is_for_another_operation(self, run: Run, save: Save) -> None:
        result = run("modify", "--plan", save())

        assert (result.exit_code, "is a plan to create" in result.stderr) == (2, True)

    def test_without_a_file_and_a_plan(self, run: Run) -> None:
        assert "name a FILE, or a plan" in run("create").stderr

    def test_not_if_what_has_no_part_in_it_changed(
        self, run: Run, save: Save, site_path: Path
    ) -> None:
        path = save()
        values = yaml.safe_load(site_path.read_text())
        values["networks"]["green"] = {"strategy": "flat_dhcp", "subnet": "10.20.7.0/24"}
        site_path.write_text(yaml.safe_dump(values | {"limits": {"call": 17}, "history": 64}))

        assert run("create", "--plan", path).exit_code == 0


class TestADamagedFile:
    @pytest.mark.parametrize(
        ("change", "field", "said"),
        [
            (lambda plan: plan.update(version=2), "version", "2 is unknown; known: 1"),
            (lambda plan: plan.update(slivers=[]), "slivers", "at least 1"),
            (lambda plan: plan.pop("site"), "site", "missing"),
            (lambda plan: plan.update(colour="red"), "colour", "unknown field"),
            (
                lambda plan: plan["slivers"][0]["sliver"]["capacities"].update(core=0),
                "slivers[0].sliver.capacities.core",
                "must be from 1 to 1024, is 0",
            ),
            (
                lambda plan: plan["slivers"][0]["sliver"].update(type="Moon"),
                "slivers[0].sliver.type",
                "no handler for 'Moon'",
            ),
            (
                lambda plan: plan["slivers"][0]["steps"][0].update(finding="perhaps"),
                "slivers[0].steps[0].finding",
                "must be 'already so'",
            ),
            (lambda plan: plan["slivers"].append(plan["slivers"][0]), "slivers", "given twice"),
        ],
        ids=["version", "empty", "site", "unknown", "sliver", "type", "finding", "twice"],
    )
    def test_is_refused_with_file_line_and_field(
        self,
        run: Run,
        save: Save,
        fakes: Substrate,
        change: Callable[[Any], object],
        field: str,
        said: str,
    ) -> None:
        path = save(boot_script=SCRIPT)
        edit(path, change)

        result = run("create", "--plan", path)

        assert result.exit_code == 2
        assert f"{path}:" in result.stderr
        assert f" {field}: " in result.stderr
        assert said in result.stderr
        assert "open-sesame" not in result.output
        assert not fakes.servers

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}{"version": 1}'])
    def test_that_is_no_plan_is_refused(self, run: Run, tmp_path: Path, text: str) -> None:
        (tmp_path / "plan.json").write_text(text)

        result = run("create", "--plan", str(tmp_path / "plan.json"))

        assert result.exit_code == 2
        assert re.search(r"plan\.json:[12]: ", result.stderr)

    def test_that_is_not_there_is_refused(self, run: Run) -> None:
        assert "cannot read nowhere.json" in run("create", "--plan", "nowhere.json").stderr


class TestCarryingOut:
    def test_looks_again_when_nobody_else_can_change_the_sliver(
        self, site: Site, fakes: Substrate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sliver = NodeSliver(**VM)
        with HandlerProcessor(site) as processor:
            plan = SavedPlan.of(site, [sliver], [processor.plan(sliver).result()])
            put_all = HandlerProcessor._put_all

            def late(having: HandlerProcessor, *words: Any, **named: Any) -> Any:
                """Make something of the sliver between both looks."""
                having.create(NodeSliver(**VM)).result()
                return put_all(having, *words, **named)

            monkeypatch.setattr(HandlerProcessor, "_put_all", late)
            (future,) = processor.carry_out(plan)
            outcome = future.result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert "the plan for sliver vm1 is outdated" in outcome.error.message
        assert "port nic1: planned 'will create', now 'already so'" in outcome.error.message
        assert outcome.steps == ()
        assert Journal(FileStore(site.state_dir)).unfinished() == ()

    def test_is_for_the_library_too(self, site: Site, fakes: Substrate, tmp_path: Path) -> None:
        sliver = NodeSliver(**VM)
        with HandlerProcessor(site) as processor:
            SavedPlan.of(site, [sliver], [processor.plan(sliver).result()]).save(
                tmp_path / "plan.json"
            )

            plan = read_plan(tmp_path / "plan.json")
            (future,) = processor.carry_out(plan)

            assert done(future.result()).operation is Operation.CREATE
            assert plan.wanted() == (sliver,)
            with pytest.raises(Refused, match="the sliver is there already"):
                processor.carry_out(plan)


class TestWherePlacementChooses:
    @pytest.fixture
    def site(self, fake_site: Site) -> Site:
        room = {"cores": 8, "ram": 32, "disk": 100}
        hosts = {"w1": room, "w2": {**room, "gpus": 1}, "w3": {**room, "gpus": 2}}
        values = fake_site.model_dump() | {"hosts": {name: {} for name in hosts}}
        return Site.model_validate(values | {"fake": {"hosts": hosts}})

    @pytest.fixture
    def processor(self, site: Site) -> Iterator[HandlerProcessor]:
        with HandlerProcessor(site) as processor:
            yield processor

    @pytest.fixture
    def auto(self, vm: MakeVm) -> MakeVm:
        return lambda **values: vm(**({"host": "auto", "components": ()} | values))

    def saved(self, processor: HandlerProcessor, *slivers: NodeSliver) -> SavedPlan:
        outcomes = [done(processor.plan(sliver).result()) for sliver in slivers]
        made = SavedPlan.of(processor.site, slivers, outcomes)
        return SavedPlan.model_validate_json(made.model_dump_json())

    def test_each_goes_where_the_plan_says_whatever_those_before_it_cost(
        self, processor: HandlerProcessor, site: Site, auto: MakeVm
    ) -> None:
        plan = self.saved(processor, *(auto(id=name) for name in "abc"))
        assert {each.host for each in plan.slivers} == {"w1"}

        for future in processor.carry_out(plan):
            done(future.result())

        assert set(substrate(site, "w1").servers) == {"a", "b", "c"}

    def test_a_device_is_that_of_the_plan(
        self, processor: HandlerProcessor, site: Site, auto: MakeVm
    ) -> None:
        plan = self.saved(processor, auto(components=(GPU,)))

        (future,) = processor.carry_out(plan)

        done(future.result())
        (planned,) = plan.slivers
        stamp = substrate(site, str(planned.host)).servers["sliver-1"].stamp.sliver
        assert {d.id: d.bdf for d in stamp.devices()} == planned.devices

    def test_it_is_refused_if_the_device_was_given_away(
        self, processor: HandlerProcessor, site: Site, auto: MakeVm
    ) -> None:
        plan = self.saved(processor, auto(components=(GPU,)))
        done(processor.create(auto(id="other", components=(GPU,))).result())

        with pytest.raises(Refused, match=r"sliver-1 is outdated: .*would .* now"):
            processor.carry_out(plan)

        assert sorted(n for h in site.hosts for n in substrate(site, h).servers) == ["other"]

    def test_a_new_device_of_a_modification_is_that_of_the_plan(
        self, processor: HandlerProcessor, site: Site, auto: MakeVm
    ) -> None:
        done(processor.create(auto(host="w3")).result())
        plan = self.saved(processor, auto(host="w3", components=(GPU,)))

        (future,) = processor.carry_out(plan)

        done(future.result())
        stamp = substrate(site, "w3").servers["sliver-1"].stamp.sliver
        assert {d.id: d.bdf for d in stamp.devices()} == plan.slivers[0].devices

    def test_a_claim_does_not_outlive_a_refusal(
        self, processor: HandlerProcessor, auto: MakeVm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = self.saved(processor, auto(components=(GPU,)))
        (planned,) = plan.slivers
        other = planned.model_copy(update={"devices": {"gpu": ("0000:99:00.0",)}})
        monkeypatch.setattr(PlannedSliver, "refuse_other", lambda *_: None)

        (future,) = processor.carry_out(plan.model_copy(update={"slivers": (other,)}))

        assert future.result().status is Status.REFUSED
        assert processor._hosts.claims.home("sliver-1") is None

    def test_two_that_would_get_one_device_are_not_saved(
        self, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        with pytest.raises(Refused, match="a and b would both get 0000:"):
            self.saved(processor, *(auto(id=name, components=(GPU,)) for name in "ab"))


class TestOfSliversThatNameEachOther:
    @pytest.fixture
    def site(self, stitching_site: Site) -> Site:
        return stitching_site

    def test_is_saved_once_they_are_there(self, processor: HandlerProcessor) -> None:
        service, node = net(at("t1")), stitched_vm(vnic(**to()))
        for future in processor.create_all([node, service]):
            done(future.result())
        wider = [net(at("t1", bandwidth=50)), stitched_vm(vnic(**to(), bandwidth=50))]
        plan = SavedPlan.of(
            processor.site, wider, [processor.plan(sliver).result() for sliver in wider]
        )

        assert plan.operation is Operation.MODIFY
        for future in processor.carry_out(plan):
            done(future.result())

    def test_a_node_is_created_at_a_service_that_is_there(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net(at("t1"))).result())
        node = stitched_vm(vnic(**to()))
        plan = SavedPlan.of(processor.site, [node], [processor.plan(node).result()])

        (future,) = processor.carry_out(plan)

        done(future.result())
        assert fakes.ports["vm-1", "nic"].source == "t1"

    def test_it_is_refused_if_the_service_moved(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net(at("t1"))).result())
        node = stitched_vm(vnic(**to()))
        plan = SavedPlan.of(processor.site, [node], [processor.plan(node).result()])
        done(processor.delete(net(at("t1"))).result())

        with pytest.raises(Refused, match=r"vm-1 is outdated: .*there is no network service net-1"):
            processor.carry_out(plan)

        assert not fakes.servers

    def test_is_not_saved_while_what_one_names_is_not_there(
        self, processor: HandlerProcessor
    ) -> None:
        slivers = [net(at("t1")), stitched_vm(vnic(**to()))]
        outcomes = [processor.plan(sliver).result() for sliver in slivers]

        with pytest.raises(Refused, match="cannot be saved: there is none for vm-1"):
            SavedPlan.of(processor.site, slivers, outcomes)


def test_it_is_made_of_the_plans_of_its_slivers_alone(tmp_path: Path) -> None:
    with HandlerProcessor(Scene("", Request("create", node())).site(tmp_path)) as processor:
        one, two = node(), node(id="another")
        planned = processor.plan(one).result()
        created = processor.create(one).result()

        for slivers, outcomes in [([one, two], [planned]), ([two], [planned]), ([one], [created])]:
            with pytest.raises(ValueError, match="not the plans of the slivers, in their order"):
                SavedPlan.of(processor.site, slivers, outcomes)


def test_a_secret_of_a_service_is_in_the_file_alone(
    tmp_path: Path,
) -> None:
    sliver = vpn(key="open-sesame")
    with HandlerProcessor(Scene("", Request("create", node())).site(tmp_path)) as processor:
        plan = SavedPlan.of(processor.site, [sliver], [processor.plan(sliver).result()])
        plan.save(tmp_path / "plan.json")
        done(processor.create(vpn(key=None)).result())

        with pytest.raises(Refused) as refusal:
            processor.carry_out(read_plan(tmp_path / "plan.json"))

    assert "open-sesame" in (tmp_path / "plan.json").read_text()
    assert "open-sesame" not in f"{refusal.value} {plan!r}"
