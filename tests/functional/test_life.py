"""The whole life of a sliver on a real libvirtd and QEMU: as asked, twice, interrupted, and failing."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import libvirt
import pytest

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.contract import GuestAddress
from fabric_direct.drivers.guests.boot import Boot
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.drivers.guests.qemu_agent import AgentGuest
from fabric_direct.drivers.guests.ssh import SshGuest
from fabric_direct.drivers.libvirt.servers import driver as compute
from fabric_direct.drivers.libvirt.servers.driver import LibvirtCompute
from fabric_direct.drivers.ssh.known_hosts import known_hosts
from fabric_direct.errors import DriverError
from fabric_direct.model import (
    Finding,
    NodeSliver,
    Operation,
    SliverRef,
    State,
    Status,
)
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.conftest import KEY
from tests.functional.apart import TAG
from tests.outcomes import done, made

Things = Callable[[], set[str]]
NICS = [
    {"type": "vNIC", "id": "nic1", "network": "red"},
    {"type": "vNIC", "id": "nic2", "network": "blue"},
]
DATA = {"type": "Storage", "id": "data", "size": 1}
STORED = {"type": "Storage", "id": "stored"}
GPU = {"type": "GPU", "id": "gpu", "bdf": ["ffff:ff:1f.7"]}
SCRIPT = "#!/bin/busybox sh\necho hello from $(hostname) > /root/hello.txt\n"


def sliver(name: str, **values: Any) -> NodeSliver:
    defaults = {
        "id": f"{TAG}-{name}",
        "name": "node",
        "image": "tiny",
        "capacities": {"core": 1, "ram": 1, "disk": 1},
        "ssh_keys": [KEY],
        "boot_script": SCRIPT,
        "components": [*NICS, DATA],
    }
    return NodeSliver.model_validate(defaults | values)


@pytest.fixture(scope="module")
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


@pytest.fixture(scope="module")
def quick(unattended: Site) -> Iterator[HandlerProcessor]:
    """One that does not wait for guests to boot."""
    with HandlerProcessor(unattended) as processor:
        yield processor


@pytest.fixture(autouse=True)
def nothing_left(
    processor: HandlerProcessor, things: Things, request: pytest.FixtureRequest
) -> Iterator[None]:
    """After each test nothing of its slivers is there, whatever became of it."""
    yield
    if request.cls is TestActions:
        return
    for name in ("own", "pair1", "pair2"):
        assert processor.delete(SliverRef(id=f"{TAG}-{name}")).result().ok
    assert things() == set()


class TestABootScript:
    """The tiny guest has no bash, and says by itself when its boot has ended."""

    SCRIPT = "\necho by $0 with $# >/root/told\nmkfifo /root/end\nread it </root/end\nexit 3\n"

    def test_that_names_no_interpreter_and_does_not_end_is_a_warning(
        self, processor: HandlerProcessor
    ) -> None:
        wanted = sliver("own", boot_script=self.SCRIPT, wait_for="login")
        agent, address = (
            AgentGuest(processor.site, "localhost"),
            GuestAddress(wanted.id, "", "root"),
        )
        inside = Guest(agent, address)

        def run(command: str) -> str:
            return agent.run(address, ("sh", "-c", command), timeout=60).stdout.decode()

        created = done(processor.create(wanted).result())
        [warning] = [text for text in created.warnings if "boot goes on" in text]
        assert "its boot script (boot_script) has ended (wait_for: login)" in warning
        wait_until("the script to wait", lambda: run("[ -p /root/end ] && echo so"), timeout=240)
        told = run("cat /root/told")
        assert told.startswith("by /var/lib/cloud/instance/scripts/part-")
        assert told.endswith(" with 0\n")
        found = done(processor.probe(wanted.ref()).result()).observed
        assert found
        assert found.guest
        assert (found.guest.reachable, found.guest.boot_finished) == (True, False)

        run("echo >/root/end")
        assert inside.wait_boot([Boot.FINISHED], timeout=240) is Boot.FINISHED
        [error] = inside.boot_errors()
        assert error.endswith("exit status 3")


class TestAsAsked:
    def test_created_modified_probed_and_deleted(
        self, processor: HandlerProcessor, things: Things
    ) -> None:
        wanted = sliver("own")

        plan = done(processor.plan(wanted, Operation.CREATE).result())
        assert {s.finding for s in plan.steps} <= {Finding.WILL_CREATE, Finding.WILL_CHANGE}
        assert things() == set()

        created = done(processor.create(wanted).result()).observed
        assert created
        assert created.state is State.RUNNING
        assert created.guest
        assert created.guest.boot_finished
        for nic in created.interfaces:
            assert nic.addresses[0] in nic.guest_addresses
            with socket.create_connection((nic.addresses[0].split("/")[0], 22), 10) as ssh:
                assert ssh.recv(4) == b"SSH-"

        again = done(processor.create(wanted).result())
        assert made(again) == set()
        unchanged = processor.plan(wanted, Operation.MODIFY).result()
        assert {s.finding for s in unchanged.steps} == {Finding.ALREADY_SO}

        nic3 = {
            "type": "vNIC",
            "id": "nic3",
            "network": "blue",
            "interface": {"mac": "52:54:00:12:34:56"},
        }
        changed = sliver("own", components=[*NICS, nic3])
        modified = done(processor.modify(changed).result()).observed
        assert modified
        assert [i.component for i in modified.interfaces] == ["nic1", "nic2", "nic3"]
        assert modified.interfaces[2].mac == "52:54:00:12:34:56"
        assert modified.volumes == ()
        assert made(done(processor.modify(changed).result())) == set()

        done(processor.delete(wanted.ref()).result())
        assert things() == set()
        done(processor.delete(wanted.ref()).result())

    def test_two_at_once_get_different_addresses(self, quick: HandlerProcessor) -> None:
        nic = NICS[:1]
        pair = [sliver(f"pair{n}", components=nic) for n in (1, 2)]

        outcomes = [done(f.result()) for f in [quick.create(s) for s in pair]]

        addresses = {o.observed.interfaces[0].addresses for o in outcomes if o.observed}
        assert len(addresses) == 2
        for s in pair:
            done(quick.delete(s.ref()).result())


@pytest.fixture(scope="class")
def created(processor: HandlerProcessor) -> Iterator[NodeSliver]:
    """A running VM."""
    vm = sliver("shared", components=[*NICS, DATA])
    done(processor.create(vm).result())
    yield vm
    done(processor.delete(vm.ref()).result())


@pytest.fixture
def shared(processor: HandlerProcessor, created: NodeSliver) -> NodeSliver:
    """A VM that tests may look at and act on, and that has booted, whatever was done to it before."""
    agent, guest = AgentGuest(processor.site, "localhost"), root_of(created)
    agent.wait(guest, timeout=240)
    wait_until("the boot to finish", lambda: agent.boot_finished(guest), timeout=240)
    return created


def root_of(vm: NodeSliver) -> GuestAddress:
    return GuestAddress(vm.id, f"{vm.id}-{vm.name}", "root")


@pytest.mark.xdist_group("shared")
class TestActions:
    def inside(self, processor: HandlerProcessor, vm: NodeSliver, *argv: str) -> str:
        agent = AgentGuest(processor.site, "localhost")
        return agent.run(root_of(vm), argv, timeout=60).stdout.decode()

    def test_the_boot_script_has_run_by_its_own_first_line(
        self, processor: HandlerProcessor, shared: NodeSliver
    ) -> None:
        assert self.inside(processor, shared, "cat", "/root/hello.txt") == "hello from node\n"

    def test_cpuinfo_and_cpupin(self, processor: HandlerProcessor, shared: NodeSliver) -> None:
        pin = {"vcpu_cpu_map": [{"vcpu": 0, "cpu": 1}]}

        pinned = done(processor.poa(shared, "cpupin", pin).result()).data

        assert pinned["vcpus"][0]["affinity"] == [1]
        assert done(processor.poa(shared, "cpuinfo").result()).data["vcpus"][0]["affinity"] == [1]

    def test_cpupin_to_a_cpu_that_the_host_has_not_is_refused(
        self, processor: HandlerProcessor, shared: NodeSliver
    ) -> None:
        pin = {"vcpu_cpu_map": [{"vcpu": 0, "cpu": 9999}]}

        assert processor.poa(shared, "cpupin", pin).result().status is Status.REFUSED

    def test_numainfo_names_the_hosts_nodes(
        self, processor: HandlerProcessor, shared: NodeSliver
    ) -> None:
        nodes = done(processor.poa(shared, "numainfo").result()).data["nodes"]

        assert nodes[0]["node"] == 0
        assert nodes[0]["memory"] > 0

    def test_keys_are_added_and_removed_in_the_guest(
        self, processor: HandlerProcessor, shared: NodeSliver
    ) -> None:
        key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIVx5rgcm7wGOyXTRpevUXzR1Bfd+zzFPciwGqeYA4XL"

        done(processor.poa(shared, "addkey", {"keys": [{"key": key, "comment": "bob"}]}).result())
        assert key in self.inside(processor, shared, "cat", "/root/.ssh/authorized_keys")
        done(processor.poa(shared, "removekey", {"keys": [{"key": key}]}).result())

        assert key not in self.inside(processor, shared, "cat", "/root/.ssh/authorized_keys")

    def test_the_console_has_what_the_guest_said(
        self, processor: HandlerProcessor, shared: NodeSliver
    ) -> None:
        said = done(processor.poa(shared, "console", {"lines": 1000}).result()).data["console"]

        assert "guest: READY" in said

    def test_bandwidth_is_changed_while_it_runs(
        self, processor: HandlerProcessor, shared: NodeSliver
    ) -> None:
        limited = [{**NICS[0], "interface": {"bandwidth": 80}}, NICS[1], DATA]

        outcome = processor.modify(sliver("shared", components=limited)).result()

        if outcome.error and "qdisc" in outcome.error.message.lower():
            pytest.skip(f"this kernel cannot limit a link: {outcome.error.message}")
        observed = done(outcome).observed
        assert observed
        assert observed.interfaces[0].bandwidth == 80
        done(processor.modify(shared).result())

    def test_an_address_is_changed_by_plugging_the_nic_anew(
        self, processor: HandlerProcessor, shared: NodeSliver
    ) -> None:
        red = processor.site.networks["red"].subnet
        moved = [{**NICS[0], "interface": {"ipv4": f"{red[77]}/24"}}, NICS[1], DATA]

        observed = done(processor.modify(sliver("shared", components=moved)).result()).observed

        assert observed
        nic = next(i for i in observed.interfaces if i.component == "nic1")
        assert f"{red[77]}/24" in nic.guest_addresses
        done(processor.modify(shared).result())

    def test_a_reboot_starts_the_guest_anew_and_keeps_everything(
        self,
        processor: HandlerProcessor,
        shared: NodeSliver,
        connection: libvirt.virConnect,
    ) -> None:
        name = root_of(shared).instance
        id_before = connection.lookupByName(name).ID()
        before = self.inside(processor, shared, "cat", "/proc/sys/kernel/random/boot_id")

        assert done(processor.poa(shared, "reboot").result()).data == {"state": "running"}

        assert self.inside(processor, shared, "cat", "/proc/sys/kernel/random/boot_id") != before
        assert connection.lookupByName(name).ID() != id_before
        observed = processor.probe(shared).result().observed
        assert observed
        assert observed.differences == ()

    def test_a_guest_that_is_stopped_shuts_down_by_itself_and_is_started(
        self,
        processor: HandlerProcessor,
        shared: NodeSliver,
        connection: libvirt.virConnect,
    ) -> None:
        domain = connection.lookupByName(root_of(shared).instance)
        for _ in range(2):
            assert done(processor.poa(shared, "stop").result()).data == {"state": "stopped"}
        assert domain.state() == [libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN]
        stopped = processor.probe(shared).result().observed
        assert stopped
        assert stopped.differences == ("the server is stopped, not running",)

        assert done(processor.poa(shared, "start").result()).data == {"state": "running"}

    def test_a_nic_that_was_pulled_behind_our_back_is_told_and_put_back_by_modify(
        self, processor: HandlerProcessor, shared: NodeSliver
    ) -> None:
        LibvirtCompute(processor.site, "localhost").detach_port(shared.id, "nic2", timeout=60)

        drifted = processor.probe(shared).result().observed
        assert drifted
        assert drifted.differences == ("vNIC nic2 is missing",)

        assert "nic nic2" in made(done(processor.modify(shared).result()))


class TestInterrupted:
    """A process that is killed (SIGKILL) between two calls leaves what the next one can go on with."""

    @staticmethod
    def killed(site: Site, operation: str, wanted: NodeSliver, patch: str) -> None:
        """Run an operation in another process that kills itself when it comes to what is patched."""
        code = f"""
            import os, signal
            from fabric_direct.site.config import Site
            from fabric_direct.model import NodeSliver
            from fabric_direct.processor import HandlerProcessor
            from fabric_direct.drivers.libvirt.servers import driver as compute
            from fabric_direct.drivers.libvirt.servers.driver import LibvirtCompute
            from fabric_direct.drivers.libvirt.networks.driver import LibvirtNetwork
            from fabric_direct.drivers.libvirt.storage.driver import LibvirtVolume

            def die(*_, **__):
                os.kill(os.getpid(), signal.SIGKILL)

            def after(owner, name):
                inner = getattr(owner, name)
                setattr(owner, name, lambda *a, **k: (inner(*a, **k), die()))

            def before(owner, name):
                setattr(owner, name, die)

            {patch}
            site = Site.model_validate_json({site.model_dump_json()!r})
            sliver = NodeSliver.model_validate_json({wanted.model_dump_json()!r})
            HandlerProcessor(site).{operation}(sliver).result()
        """
        child = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], check=False, timeout=300
        )
        assert child.returncode == -signal.SIGKILL

    POINTS = (
        "after(LibvirtNetwork, 'create_port')",
        "after(LibvirtVolume, 'create')",
        "before(compute, 'power_on')",
        "after(LibvirtCompute, 'create')",
    )

    @pytest.mark.parametrize("patch", POINTS)
    def test_a_killed_creation_leaves_nothing_after_delete(
        self, quick: HandlerProcessor, things: Things, patch: str
    ) -> None:
        wanted = sliver("own")
        self.killed(quick.site, "create", wanted, patch)
        assert things() != set()

        done(quick.delete(wanted.ref()).result())

        assert things() == set()
        assert quick.unfinished() == ()

    @pytest.mark.parametrize("patch", POINTS[1:-1])
    def test_a_killed_creation_is_finished_by_the_next(
        self, quick: HandlerProcessor, patch: str
    ) -> None:
        self.killed_and_finished(quick, patch)

    def test_a_killed_creation_whose_guest_boots_is_finished_by_the_next(
        self, processor: HandlerProcessor
    ) -> None:
        self.killed_and_finished(processor, self.POINTS[-1])

    def killed_and_finished(self, processor: HandlerProcessor, patch: str) -> None:
        wanted = sliver("own")
        self.killed(processor.site, "create", wanted, patch)

        observed = done(processor.create(wanted).result()).observed

        assert observed
        assert observed.differences == ()
        assert processor.unfinished() == ()

    def test_what_a_killed_creation_made_is_taken_back_when_the_next_one_fails(
        self,
        processor: HandlerProcessor,
        things: Things,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        wanted = sliver("own")
        self.killed(processor.site, "create", wanted, "after(LibvirtCompute, 'create')")

        def fail(*_: object, **__: object) -> None:
            raise DriverError("the guest does not answer")

        monkeypatch.setattr(AgentGuest, "wait", fail)
        outcome = processor.create(wanted).result()

        assert outcome.status is Status.FAILED
        assert outcome.left == ()
        assert things() == set()

    def test_a_killed_deletion_is_finished_by_the_next(
        self, quick: HandlerProcessor, things: Things
    ) -> None:
        wanted = sliver("own")
        self.killed(quick.site, "create", wanted, "after(LibvirtCompute, 'create')")
        self.killed(quick.site, "delete", wanted, "after(LibvirtCompute, 'delete')")

        (recovered,) = quick.recover()

        done(recovered.result())
        assert things() == set()

    def test_a_killed_modification_is_finished_by_the_next(
        self, processor: HandlerProcessor
    ) -> None:
        wanted = sliver("own", components=[NICS[0], DATA])
        done(processor.create(wanted).result())
        changed = sliver("own", components=NICS)
        self.killed(processor.site, "modify", changed, "after(LibvirtCompute, 'attach_port')")

        observed = done(processor.modify(changed).result()).observed

        assert observed
        assert observed.differences == ()
        assert observed.volumes == ()


class TestFailing:
    @pytest.mark.parametrize(
        ("owner", "method"),
        [
            (AgentGuest, "wait"),
            (compute, "power_on"),
            (LibvirtCompute, "create"),
        ],
    )
    def test_a_creation_that_fails_leaves_nothing(
        self,
        processor: HandlerProcessor,
        things: Things,
        monkeypatch: pytest.MonkeyPatch,
        owner: Any,
        method: str,
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise DriverError("told to fail")

        monkeypatch.setattr(owner, method, fail)

        outcome = processor.create(sliver("own")).result()

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert "told to fail" in outcome.error.message
        assert things() == set()

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"image": "unknown"}, "image"),
            ({"capacities": {"core": 1000, "ram": 1, "disk": 1}}, "capacities.core"),
            ({"capacities": {"core": 1, "ram": 60000, "disk": 1}}, "capacities.ram"),
            ({"capacities": {"core": 1, "ram": 1, "disk": 1000000}}, "capacities.disk"),
            ({"components": [{**NICS[0], "network": "green"}]}, "components[0].network"),
            (
                {"components": [{**NICS[0], "interface": {"ipv4": "192.168.254.9/24"}}]},
                "components[0].interface.ipv4",
            ),
            (
                {"components": [{"type": "GPU", "id": "g", "bdf": ["ffff:ff:1f.7"]}]},
                "components[0].bdf[0]",
            ),
            (
                {"components": [{"type": "Storage", "id": "s", "volume": "unknown"}]},
                "components[0].volume",
            ),
        ],
    )
    def test_what_the_host_cannot_serve_is_refused_by_field(
        self, processor: HandlerProcessor, things: Things, values: dict[str, Any], field: str
    ) -> None:
        outcome = processor.create(sliver("own", **values)).result()

        assert outcome.status is Status.REFUSED, outcome.error
        assert outcome.error
        assert outcome.error.field == field
        assert things() == set()

    def test_a_domain_of_the_same_name_that_is_not_ours_is_untouched(
        self, processor: HandlerProcessor, connection: libvirt.virConnect, things: Things
    ) -> None:
        xml = f"""<domain type='qemu'><name>{TAG}-own-node</name><memory unit='MiB'>64</memory>
                 <os><type>hvm</type></os></domain>"""
        foreign = connection.defineXML(xml)
        try:
            outcome = processor.create(sliver("own")).result()
            processor.delete(SliverRef(id=f"{TAG}-own")).result()

            assert outcome.error
            assert outcome.error.kind == "NotOurs"
            assert connection.lookupByName(f"{TAG}-own-node").UUID() == foreign.UUID()
        finally:
            foreign.undefine()
        assert things() == set()


class TestGuestsThroughSsh:
    """A site that has no agent in its guests: its key is let in, the console tells the host key."""

    @pytest.fixture
    def by_ssh(self, site: Site, tmp_path: Path) -> Site:
        key = tmp_path / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        access = site.guest_access.model_copy(update={"ssh_key": key})
        return site.model_copy(update={"guest": "ssh", "guest_access": access})

    def test_created_and_deleted(self, by_ssh: Site) -> None:
        wanted = sliver("own")
        with HandlerProcessor(by_ssh) as processor:
            created = done(processor.create(wanted).result()).observed
            assert created
            assert created.guest
            assert created.guest.via == "ssh"
            assert created.interfaces[0].addresses[0] in created.interfaces[0].guest_addresses
            assert created.guest.ssh_host_key
            assert created.guest.ssh_host_key in known_hosts(by_ssh).read_text()

            done(processor.delete(wanted.ref()).result())

        assert known_hosts(by_ssh).read_text() == ""

    def test_a_creation_that_fails_leaves_no_host_key(
        self, by_ssh: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise DriverError("told to fail")

        monkeypatch.setattr(SshGuest, "wait", fail)
        with HandlerProcessor(by_ssh) as processor:
            outcome = processor.create(sliver("own")).result()

        assert outcome.status is Status.FAILED
        assert known_hosts(by_ssh).read_text() == ""


def test_it_works_in_a_worker_forked_from_a_process_with_a_connection(
    processor: HandlerProcessor, connection: libvirt.virConnect
) -> None:
    wanted = sliver("own", components=[DATA])
    assert connection.isAlive()

    child = os.fork()
    if child == 0:
        outcome = processor.create(wanted).result()
        os._exit(0 if outcome.ok and processor.delete(wanted.ref()).result().ok else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert processor.probe(wanted.ref()).result().ok


def test_many_threads_share_one_connection(processor: HandlerProcessor, site: Site) -> None:
    with ThreadPoolExecutor(16) as pool:
        probes = list(pool.map(lambda n: processor.probe(SliverRef(id=f"{TAG}-{n}")), range(64)))

    assert all(probe.result().ok for probe in probes)


def test_the_journal_holds_no_trace_of_what_has_ended(processor: HandlerProcessor) -> None:
    journal: Path = processor.site.state_dir / "journal"

    assert not journal.exists() or list(journal.iterdir()) == []
