"""`fabric-direct migrate`: an AM's old files as a site, and what is said of the rest."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from fabric_direct.cli import main
from fabric_direct.errors import Refused
from fabric_direct.migration import ini
from fabric_direct.migration.cloud import command, typed_in
from fabric_direct.migration.draft import Notice, NoticeKind
from fabric_direct.migration.inventory import AnsibleInventory, expand
from fabric_direct.migration.translate import Migration, Sources, migrate
from fabric_direct.migration.values import parse_document
from fabric_direct.site.config import Site, load_site
from tests.outcomes import result_of

EXAMPLES = Path(__file__).parents[2] / "examples" / "migrate"
UNTOLD = "s3cr3t: 'of {the} cloud"
HEAD = (
    "[fabric_head]\n"
    "hn auth_url=http://127.0.0.1:5000/v3 username=admin project_name=admin "
    "ext_network=public net_name=management-2004 security_group=fabric-sliver,default key_name=default\n"
)
WORKER = "[fabric_worker]\nw1 ansible_host=127.0.0.2\n"
NSO = "[fabric_site_nso]\nnso url=https://127.0.0.5:8888/jsonrpc username=am\n"
AL2S = "[localhost]\nlocalhost base_url=https://127.0.0.6/ ownerPath=i2/netres/x api_access_key=k\n"
Write = Callable[..., Path]
Run = Callable[..., Result]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file and return its path."""

    def dump(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return dump


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in an empty directory."""

    def invoke(*words: object, **options: Any) -> Result:
        return CliRunner().invoke(
            main, ["migrate", *map(str, words)], catch_exceptions=False, **options
        )

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return invoke


def migrated(**files: Path) -> Migration:
    return migrate(Sources(**files), Path("/etc/openstack/secure.yaml"))


def site(done: Migration, tmp_path: Path) -> Site:
    """Return the site as every other command would load it."""
    path = tmp_path / "loaded.yaml"
    path.write_text(done.site)
    return load_site(path)


def said(done: Migration, what: str) -> Notice:
    """Return the one finding about a field or variable."""
    (found,) = [finding for finding in done.findings if finding.what == what]
    return found


def skipped(done: Migration) -> list[str]:
    return [finding.what for finding in done.findings if finding.kind is NoticeKind.NOT_TRANSLATED]


class TestTheExample:
    @pytest.fixture
    def done(self) -> Migration:
        return migrated(
            vm=EXAMPLES / "vm_handler_config.yml",
            vnic=EXAMPLES / "vnic_net_handler_config.yml",
            net=EXAMPLES / "net_handler_config.yml",
            al2s=EXAMPLES / "al2s_handler_config.yml",
            switch=EXAMPLES / "switch_handler_config.yml",
            inventory=EXAMPLES / "inventory",
            actor_config=EXAMPLES / "config.yml",
        )

    def test_becomes_a_site_that_loads(self, done: Migration, tmp_path: Path) -> None:
        expected = {
            "site": "lab-am",
            "drivers": {
                "VM": "openstack",
                "GPU": "hostdev",
                "SmartNIC": "hostdev",
                "SharedNIC": "sriov",
                "FPGA": "fpga",
                "FPGA_Xilinx-SN1022": "sn1022",
                "NVME": "hostdev",
                "Storage": "openstack",
                "vNIC": "openstack",
                "L2STS": "nso",
                "FABNetv4": "nso",
                "FABNetv4Ext": "nso",
                "L2PTP": "al2s",
                "L3VPN": "al2s",
                "Switch": "p4switch",
            },
            "p4_switches": {
                "p4.localhost": {
                    "ssh": "ssh://rare@127.0.0.4",
                    "user": "tenant",
                    "sudo": True,
                    "nameservers": (ip_address("192.0.2.53"),),
                    "ssh_sources": (ip_network("192.0.2.0/24"),),
                    "icmp_subnets": (ip_network("192.0.2.0/24"),),
                    "interface": "ma1",
                }
            },
            "openstack": {
                "cloud": "lab-am",
                "external_network": "public",
                "security_groups": ("default",),
            },
            "services": {
                "nso": {
                    "url": "https://127.0.0.5/restconf",
                    "user": "am",
                    "password_file": Path("/etc/fabric-direct/nso-password"),
                    "border_routers": ("core-1", "core-2"),
                },
                "al2s": {
                    "url": "https://127.0.0.6",
                    "key_file": Path("/etc/fabric-direct/al2s-key"),
                    "owner": "i2/netres/lab",
                },
            },
            "guest_access": {"ssh_key": Path("/etc/fabric/actor/site-key")},
            "actor": {
                "floating_ip": True,
                "max_flavor": "fabric.c4.m8.d10",
                "network_prefix": "dataplane",
                "management_network": "private",
            },
            "hosts": {"worker1": {"libvirt": "qemu:///system"}},
            "images": {"fabric-guest": {"user": "root"}, "fabric-debian": {"user": "debian"}},
        }
        assert site(done, tmp_path).model_dump(exclude_unset=True) == expected

    def test_and_an_entry_of_clouds_yaml_without_a_password(self, done: Migration) -> None:
        auth = {
            "auth_url": "http://127.0.0.1:5000/v3",
            "username": "admin",
            "project_name": "admin",
            "user_domain_name": "Default",
            "project_domain_name": "Default",
        }
        assert yaml.safe_load(done.clouds) == {"clouds": {"lab-am": {"auth": auth}}}

    def test_and_says_what_was_not_translated_with_file_and_line(self, done: Migration) -> None:
        found = {
            (f.what, f.place.line if f.place else 0)
            for f in done.findings
            if f.kind is NoticeKind.NOT_TRANSLATED
        }
        assert found == {
            ("playbooks.GPU", 17),
            ("key_name", 13),
            ("ansible_become_password", 2),
        }

    def test_the_lines_of_the_actors_configuration_that_change_are_named(
        self, done: Migration
    ) -> None:
        module = said(done, "module of VM")
        assert (module.kind, str(module.place)) == (NoticeKind.TO_DO, f"{EXAMPLES}/config.yml:10")
        assert module.remedy == "module: fabric_direct.actor"
        assert said(done, "config.properties.file of L2Bridge").remedy.endswith("site.yaml")
        of_nso = said(done, "class of L2STS, FABNetv4, FABNetv4Ext")
        assert (of_nso.kind, of_nso.remedy) == (NoticeKind.TO_DO, "class: NetworkServiceHandler")
        assert str(of_nso.place) == f"{EXAMPLES}/config.yml:35"

    def test_al2s_is_served_by_the_handler_of_network_services(self, done: Migration) -> None:
        assert said(done, "class of L2PTP, L3VPN").remedy == "class: NetworkServiceHandler"
        assert "here it is refused" in said(done, "playbooks.L2PTP").why

    def test_a_switch_gets_a_key_and_no_password(self, done: Migration) -> None:
        assert said(done, "module of Switch").kind is NoticeKind.TO_DO
        for field in ("ssh_key", "host_key", "sudo"):
            assert said(done, f"p4_switches.p4.localhost.{field}").kind is NoticeKind.TO_DO

    def test_what_is_not_needed_is_said_in_a_line_each(self, done: Migration) -> None:
        idle = {f.what for f in done.findings if f.kind is NoticeKind.NOT_NEEDED}
        assert {"ansible.ansible_python_interpreter", "runtime.ssh_retries"} <= idle
        assert "runtime.delete_retries" in idle

    def test_the_list_of_devices_has_its_commented_place_below_each_host(
        self, done: Migration, tmp_path: Path
    ) -> None:
        assert done.site.count("#   fabric-direct devices worker1 --all\n") == 1
        assert said(done, "hosts.worker1.devices").kind is NoticeKind.TO_DO
        filled = re.sub(r"^(    )#(devices:|  - \{)", r"\1\2", done.site, flags=re.MULTILINE)
        path = tmp_path / "filled.yaml"
        path.write_text(filled)
        assert len(load_site(path).hosts["worker1"].devices) == 2


class TestTheSettings:
    def of(self, text: str, write: Write) -> Migration:
        return migrated(vm=write("vm.yml", text))

    @pytest.mark.parametrize(
        ("word", "floating"),
        [("False", True), ("no", True), ("true", False), ("True", False), ("on", False)],
    )
    def test_disable_fip_is_the_contrary_of_a_floating_ip(
        self, word: str, floating: bool, write: Write, tmp_path: Path
    ) -> None:
        done = self.of(f"runtime: {{disable_fip: {word}}}", write)
        assert site(done, tmp_path).actor.floating_ip is floating

    def test_what_site_yaml_would_not_take_is_left_out_and_told_by_the_old_files_line(
        self, write: Write, tmp_path: Path
    ) -> None:
        done = self.of("runtime:\n  max_flavor: large\n  network_name_prefix: dp", write)
        found = said(done, "actor.max_flavor")
        assert (found.kind, str(found.place)) == (NoticeKind.NOT_TRANSLATED, f"{tmp_path}/vm.yml:2")
        assert "'large'" in found.why
        assert site(done, tmp_path).actor.network_prefix == "dp"

    def test_an_image_that_cannot_be_named_is_left_out_alone(
        self, write: Write, tmp_path: Path
    ) -> None:
        text = "runtime:\n  images:\n    rocky 9: rocky\n    default_rocky_8: rocky"
        done = self.of(text, write)
        assert list(site(done, tmp_path).images) == ["default_rocky_8"]
        assert skipped(done) == ["inventory", "images['rocky 9']"]

    def test_a_driver_of_a_model_is_taken_by_fims_spelling(
        self, write: Write, tmp_path: Path
    ) -> None:
        done = self.of("playbooks: {'FPGA_Alveo U280': fpga_provisioning.yml}", write)
        assert site(done, tmp_path).drivers == {"FPGA_Xilinx-U280": "fpga"}

    def test_two_names_of_one_model_that_differ_are_told(
        self, write: Write, tmp_path: Path
    ) -> None:
        lines = (
            "FPGA_Alveo SN1022: fpga_provisioning.yml",
            "FPGA_Xilinx-SN1022: sn1022_fpga_provisioning.yml",
        )
        done = self.of("playbooks:\n  " + "\n  ".join(lines), write)
        assert site(done, tmp_path).drivers == {"FPGA_Xilinx-SN1022": "fpga"}
        assert any("FPGA_Xilinx-SN1022" in what for what in skipped(done))

    def test_a_driver_of_a_model_that_cannot_be_named_is_left_out(
        self, write: Write, tmp_path: Path
    ) -> None:
        done = self.of("playbooks: {'FPGA_a;b': fpga_provisioning.yml}", write)
        assert site(done, tmp_path).drivers == {}
        assert "drivers['FPGA_a;b']" in skipped(done)

    def test_a_name_that_looks_like_a_number_stays_a_name(
        self, write: Write, tmp_path: Path
    ) -> None:
        done = self.of("runtime: {images: {'0E0': '1e3'}}", write)
        assert site(done, tmp_path).images["0E0"].user == "1e3"

    def test_two_files_that_differ_are_told(self, write: Write, tmp_path: Path) -> None:
        vm = write("vm.yml", "playbooks: {admin_ssh_key: /a}")
        vnic = write("vnic.yml", "playbooks: {admin_ssh_key: /b}")
        done = migrated(vm=vm, vnic=vnic)
        assert site(done, tmp_path).guest_access.ssh_key == Path("/a")
        assert f"{vm}:1" in said(done, "guest_access.ssh_key").why

    def test_a_key_below_a_home_directory_is_not_guessed(self, write: Write) -> None:
        done = self.of("playbooks: {admin_ssh_key: ~/.ssh/id_rsa}", write)
        assert "absolute path" in said(done, "playbooks.admin_ssh_key").why

    @pytest.mark.parametrize(
        ("field", "driver"),
        [
            ("GPU: worker_pci_provisioning.yml", ("GPU", "hostdev")),
            ("NVME: worker_pci_provisioning.yml", ("NVME", "hostdev")),
            ("SharedNIC: roles/worker_pci_provisioning.yml", ("SharedNIC", "sriov")),
            ("FPGA: worker_pci_provisioning.yml", ("FPGA", "fpga")),
            ("FPGA_Xilinx-SN1022: sn1022_fpga_provisioning.yml", ("FPGA_Xilinx-SN1022", "sn1022")),
            ("Storage: head_volume_provisioning.yml", ("Storage", "openstack")),
            ("L2Bridge: head_port_provisioning.yml", ("vNIC", "openstack")),
            ("L2Bridge: netam_nso_data.yml", ("L2Bridge", "nso")),
            ("PortMirror: netam_nso_data.yml", ("PortMirror", "nso")),
            ("L3VPN: al2s.yml", ("L3VPN", "al2s")),
            ("Switch: head_switch_provisioning.yml", ("Switch", "p4switch")),
        ],
    )
    def test_a_playbook_is_a_driver(
        self, field: str, driver: tuple[str, str], write: Write, tmp_path: Path
    ) -> None:
        done = self.of(f"playbooks:\n  {field}", write)
        assert site(done, tmp_path).drivers == dict([driver])
        assert skipped(done) == ["inventory"]

    @pytest.mark.parametrize(
        ("field", "handler"),
        [
            ("Switch: netam_nso_data.yml", "is not served here"),
            ("L3Cloud: al2s.yml", "is not served here"),
            ("Teapot: teapot.yml", "is not served here"),
        ],
    )
    def test_a_type_that_is_not_served_is_named(
        self, field: str, handler: str, write: Write, tmp_path: Path
    ) -> None:
        done = self.of(f"playbooks:\n  {field}", write)
        found = said(done, f"playbooks.{field.split(':', maxsplit=1)[0]}")
        assert (handler in found.why, str(found.place)) == (True, f"{tmp_path}/vm.yml:2")
        assert site(done, tmp_path).drivers == {}

    @pytest.mark.parametrize(
        "text",
        [
            "playbooks:\n  VM: our_own.yml",
            "playbooks:\n  operation:\n    reboot: our_own.yml",
            "playbooks:\n  cleanup:\n    NVME: our_own.yml",
        ],
    )
    def test_a_playbook_of_the_sites_own_is_named(self, text: str, write: Write) -> None:
        (found,) = [f for f in self.of(text, write).findings if f.place]
        assert "our_own.yml is not the playbook" in found.why

    def test_fields_that_nobody_knows_are_named(self, write: Write) -> None:
        done = self.of("runtime: {teapot: 1}\nkitchen: {}", write)
        assert skipped(done) == ["kitchen", "runtime.teapot", "inventory"]


class TestWhatHidesAValue:
    @pytest.mark.parametrize(
        ("value", "why"),
        [
            ('"{{ net }}"', "Jinja2"),
            ("\"{{ lookup('env', 'NET') }}\"", "looked up"),
            ('"{% if x %}a{% endif %}"', "Jinja2"),
            ("!vault |\n            $ANSIBLE_VAULT;1.1;AES256\n            3031", "ansible-vault"),
            ("", "no value"),
        ],
    )
    def test_is_named_and_never_evaluated(
        self, value: str, why: str, write: Write, tmp_path: Path
    ) -> None:
        text = f"all: {{}}\nfabric_head:\n  hosts:\n    hn:\n      net_name: {value}\n"
        text += "      ext_network: public\n"
        done = migrated(inventory=write("inventory.yml", text))
        found = said(done, "net_name")
        assert (why in found.why, str(found.place)) == (True, f"{tmp_path}/inventory.yml:5")
        loaded = site(done, tmp_path)
        assert loaded.actor.management_network is None
        assert loaded.openstack
        assert loaded.openstack.external_network == "public"

    def test_a_vaulted_file_of_variables_is_named_and_passed_over(
        self, write: Write, tmp_path: Path
    ) -> None:
        write("group_vars/all/vault.yml", "$ANSIBLE_VAULT;1.1;AES256\n3031\n")
        done = migrated(inventory=write("inventory", HEAD + WORKER))
        found = said(done, "the file")
        assert str(found.place) == f"{tmp_path}/group_vars/all/vault.yml:1"
        assert "ansible-vault view" in found.remedy
        assert list(site(done, tmp_path).hosts) == ["w1"]

    def test_a_vaulted_configuration_is_refused(self, write: Write, run: Run) -> None:
        result = run("--vm", write("vm.yml", "$ANSIBLE_VAULT;1.1;AES256\n3031\n"))
        assert (result.exit_code, "vm.yml:1: is encrypted" in result.stderr) == (2, True)


class TestThePassword:
    PLACES = {
        "host": f"{HEAD.rstrip()} password={shlex.quote(UNTOLD)}\n",
        "group": f"{HEAD}[fabric_head:vars]\npassword={UNTOLD}\n",
        "address": HEAD.replace("127.0.0.1", f"admin:{shlex.quote(UNTOLD)}@127.0.0.1"),
        "odd address": HEAD.replace("127.0.0.1", "'admin:s3cr3t@h℀'"),
        "nso": f"{NSO.rstrip()} password={shlex.quote(UNTOLD)}\n",
        "switch": f"[fabric_p4_switch]\np4 new_user=t ansible_ssh_pass={shlex.quote(UNTOLD)}\n",
        "al2s": AL2S.replace("=k", f"={shlex.quote(UNTOLD)}"),
        "address of al2s": AL2S.replace("https://", f"https://{shlex.quote(UNTOLD)}@"),
        "address of nso": NSO.replace("https://", f"https://am:{shlex.quote(UNTOLD)}@"),
        "worker": f"{HEAD}{WORKER.rstrip()} ansible_ssh_pass={shlex.quote(UNTOLD)}\n",
        "broken line": f"{HEAD}[fabric_head:vars]\npassword: {UNTOLD}\n",
        "broken quotes": f'{HEAD.rstrip()} password="{UNTOLD}\n',
    }

    @pytest.mark.parametrize("place", PLACES)
    @pytest.mark.parametrize("more", [(), ("--json",), ("--output", "new"), ("--verbose",)])
    def test_is_in_nothing_that_is_printed_or_written(
        self, place: str, more: tuple[str, ...], write: Write, run: Run
    ) -> None:
        result = run("--inventory", write("inventory", self.PLACES[place]), *more)
        written = "".join(path.read_text() for path in Path().rglob("*.yaml"))
        assert result.exit_code in {0, 2, 3}
        assert "s3cr3t" not in result.stdout + result.stderr + written

    @pytest.mark.parametrize(
        "files",
        [
            {
                "inventory.yml": f"fabric_head: {{hosts: {{hn: {{password: {json.dumps(UNTOLD)}}}}}}}"
            },
            {"inventory.yml": HEAD, "group_vars/all.yml": f"password: {json.dumps(UNTOLD)}"},
            {"inventory.yml": "fabric_head:\n  hosts: {hn: {password: s3cr3t: [}\n"},
        ],
        ids=["yaml", "group_vars", "broken yaml"],
    )
    def test_nor_is_one_from_yaml(self, files: dict[str, str], write: Write, run: Run) -> None:
        paths = [write(name, text) for name, text in files.items()]
        result = run("--inventory", paths[0], "--verbose")
        assert "s3cr3t" not in result.stdout + result.stderr

    def test_is_not_shown_by_a_value_itself(self) -> None:
        assert "s3cr3t" not in repr(parse_document(f"a: {json.dumps(UNTOLD)}", "f").values())

    def test_has_a_place_and_the_command_that_puts_it_there(self, write: Write, run: Run) -> None:
        inventory = write("inventory", self.PLACES["host"])
        done = result_of(run("--inventory", inventory, "--output", "new", "--json").stdout)
        (found,) = [f for f in done["findings"] if f["what"] == "password"]
        assert (found["kind"], found["line"]) == ("to do", 2)
        assert found["remedy"].endswith(command("hn", Path("new/secure.yaml")))

    def test_that_the_command_was_given_reaches_openstacksdk(
        self, write: Write, run: Run, tmp_path: Path
    ) -> None:
        run("--inventory", write("inventory", HEAD), "--output", "new")
        (cloud,) = yaml.safe_load(Path("new/clouds.yaml").read_text())["clouds"]
        _type_in(command(cloud, Path("new/secure.yaml")), UNTOLD)

        asks = f"import openstack; print(openstack.connect({cloud!r}).config.config['auth']['password'])"
        env = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        found = subprocess.run(
            [sys.executable, "-c", asks],
            cwd="new",
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout == f"{UNTOLD}\n"
        assert Path("new/secure.yaml").stat().st_mode & 0o777 == 0o600

    def test_the_command_overwrites_nothing(self, run: Run) -> None:
        secure = Path("secure.yaml")
        secure.write_text("clouds: {other: {auth: {password: kept}}}")
        with pytest.raises(subprocess.CalledProcessError):
            _type_in(command("x", secure), UNTOLD)
        assert "kept" in secure.read_text()

    @pytest.mark.parametrize("folder", ["a b", "it's", "$(touch owned)"])
    def test_the_command_takes_any_path_as_it_is(self, folder: str, run: Run) -> None:
        _type_in(command("x", Path(folder) / "secure.yaml"), UNTOLD)
        assert (Path(folder) / "secure.yaml").exists()
        assert not Path("owned").exists()


def _type_in(line: str, answer: str) -> None:
    """Run a shell's line that asks for a password; without a terminal it is read from stdin."""
    subprocess.run(
        ["bash", "-c", line],
        input=f"{answer}\n",
        text=True,
        check=True,
        capture_output=True,
        start_new_session=True,
    )


INTERPRETER = "ansible: {{ansible_python_interpreter: {}}}\n"


class TestWorkers:
    def of(self, line: str, write: Write) -> Migration:
        return migrated(inventory=write("inventory", f"{HEAD}[fabric_worker]\n{line}\n"))

    @pytest.mark.parametrize(
        ("line", "ssh", "libvirt"),
        [
            ("w1", "ssh://root@w1", "qemu+ssh://root@w1/system"),
            (
                "w1 ansible_host=127.0.0.2 ansible_user=am",
                "ssh://am@127.0.0.2",
                "qemu+ssh://am@127.0.0.2/system",
            ),
            ("w1:2222", "ssh://root@w1:2222", "qemu+ssh://root@w1:2222/system"),
            ("w1 ansible_host=::1", "ssh://root@[::1]", "qemu+ssh://root@[::1]/system"),
            (
                "w1 ansible_ssh_user=old ansible_user=new",
                "ssh://new@w1",
                "qemu+ssh://new@w1/system",
            ),
            ("w1 ansible_user='a@b/c'", "ssh://a%40b%2Fc@w1", "qemu+ssh://a%40b%2Fc@w1/system"),
        ],
    )
    def test_are_reached_as_ansible_reached_them(
        self, line: str, ssh: str, libvirt: str, write: Write, tmp_path: Path
    ) -> None:
        host = site(self.of(line, write), tmp_path).hosts["w1"]
        assert (host.ssh, host.libvirt) == (ssh, libvirt)

    def test_a_key_is_given_to_libvirt_too(self, write: Write, tmp_path: Path) -> None:
        done = self.of("w1 ansible_ssh_private_key_file='/keys/a&b key'", write)
        host = site(done, tmp_path).hosts["w1"]
        assert host.ssh_key == Path("/keys/a&b key")
        assert host.libvirt == "qemu+ssh://root@w1/system?keyfile=/keys/a%26b%20key"

    @pytest.mark.parametrize(
        "address", ["h/system?command=/bin/evil#", "a b", "-oProxyCommand=x", "h:x", ""]
    )
    def test_an_address_that_would_mean_something_else_in_a_uri_is_left_out(
        self, address: str, write: Write, tmp_path: Path
    ) -> None:
        done = self.of(f"w1 ansible_host={shlex.quote(address)}", write)
        assert skipped(done)
        assert site(done, tmp_path).hosts == {}

    @pytest.mark.parametrize("name", ["ansible_host", "ansible_user", "ansible_port"])
    def test_one_whose_way_cannot_be_known_is_not_guessed(
        self, name: str, write: Write, tmp_path: Path
    ) -> None:
        done = self.of(f"w1 {name}='{{{{ x }}}}'\nw2", write)
        assert list(site(done, tmp_path).hosts) == ["w2"]
        assert skipped(done) == [name]

    def test_a_key_that_cannot_be_known_is_left_to_the_agent(
        self, write: Write, tmp_path: Path
    ) -> None:
        done = self.of("w1 ansible_ssh_private_key_file='{{ x }}'", write)
        assert site(done, tmp_path).hosts["w1"].ssh_key is None
        assert skipped(done) == ["ansible_ssh_private_key_file"]

    def test_a_user_who_is_not_root_is_told(self, write: Write) -> None:
        assert "need root" in said(self.of("w1 ansible_user=am", write), "ansible_user").why

    @pytest.mark.parametrize(
        ("variable", "kind"),
        [
            ("ansible_python_interpreter=auto_silent", NoticeKind.NOT_NEEDED),
            ("ansible_python_interpreter=/usr/bin/python2.7", NoticeKind.NOT_TRANSLATED),
            ("ansible_python_interpreter='~/venv/bin/python'", NoticeKind.NOT_TRANSLATED),
            (
                "ansible_python_interpreter='{{ ansible_playbook_python }}'",
                NoticeKind.NOT_TRANSLATED,
            ),
            ("ansible_become=true", NoticeKind.NOT_TRANSLATED),
            ("ansible_ssh_pass=x", NoticeKind.NOT_TRANSLATED),
            ("ansible_ssh_common_args='-o StrictHostKeyChecking=no'", NoticeKind.TO_DO),
            ("ansible_ssh_common_args='-o ProxyJump=j'", NoticeKind.NOT_TRANSLATED),
            (f"ansible_ssh_args='{'-oUserKnownHostsFile=x' * 60} -v'", NoticeKind.NOT_TRANSLATED),
            ("fpga_src_usb_bus=3", NoticeKind.NOT_TRANSLATED),
        ],
    )
    def test_other_variables_are_named(self, variable: str, kind: NoticeKind, write: Write) -> None:
        done = self.of(f"w1 {variable}", write)
        assert said(done, variable.split("=", maxsplit=1)[0]).kind is kind

    @pytest.mark.parametrize(
        ("named", "taken"),
        [
            ("/usr/bin/python3.6", "/usr/bin/python3.6"),
            ("python3.9", "python3.9"),
            ("'/usr/bin/env python3'", "python3"),
            ("'/opt/a b/python'", "/opt/a b/python"),
            ("auto", None),
            ("/usr/bin/python2", None),
            ("'-c evil'", None),
            ("venv/bin/python", None),
        ],
    )
    def test_their_python_is_taken_over(
        self, named: str, taken: str | None, write: Write, tmp_path: Path
    ) -> None:
        done = self.of(f"w1 ansible_python_interpreter={named}", write)
        host = site(done, tmp_path).hosts["w1"]
        assert (host.ssh, host.python) == ("ssh://root@w1", taken)
        found = {f.what for f in done.findings}
        assert bool({"ansible_python_interpreter", "hosts.w1.python"} & found) is (taken is None)

    def test_none_is_started_where_the_worker_is_this_machine(
        self, write: Write, tmp_path: Path
    ) -> None:
        line = "w1 ansible_connection=local ansible_python_interpreter=/usr/bin/python3"
        done = self.of(line, write)
        assert site(done, tmp_path).hosts["w1"].python is None
        found = said(done, "ansible_python_interpreter")
        assert (found.kind, found.why) == (
            NoticeKind.NOT_NEEDED,
            "the worker is this machine: no Python is started there",
        )

    def test_the_python_of_a_handler_that_ran_on_workers_overrides_theirs_as_with_ansible(
        self, write: Write, tmp_path: Path
    ) -> None:
        lines = "w1 ansible_python_interpreter=/opt/python\nw2\nw3 ansible_connection=local"
        done = migrated(
            vm=write("vm.yml", INTERPRETER.format("/usr/bin/python3.6")),
            vnic=write("vnic.yml", INTERPRETER.format("/usr/bin/python3.6")),
            net=write("net.yml", INTERPRETER.format("/usr/bin/python3")),
            inventory=write("inventory", f"{HEAD}[fabric_worker]\n{lines}\n"),
        )
        hosts = site(done, tmp_path).hosts
        assert [hosts[name].python for name in ("w1", "w2", "w3")] == [
            "/usr/bin/python3.6",
            "/usr/bin/python3.6",
            None,
        ]
        assert said(done, "ansible_python_interpreter").why.endswith("vm.yml:1 overrides it")
        of_net = said(done, "ansible.ansible_python_interpreter")
        assert (of_net.kind, of_net.why) == (NoticeKind.NOT_NEEDED, "there is no Ansible")

    def test_handlers_with_different_pythons_are_told(self, write: Write, tmp_path: Path) -> None:
        done = migrated(
            vm=write("vm.yml", INTERPRETER.format("/usr/bin/python3.6")),
            vnic=write("vnic.yml", INTERPRETER.format("/usr/bin/python3.9")),
            inventory=write("inventory", f"{HEAD}[fabric_worker]\nw1\n"),
        )
        assert site(done, tmp_path).hosts["w1"].python == "/usr/bin/python3.6"
        found = said(done, "ansible.ansible_python_interpreter")
        assert found.kind is NoticeKind.NOT_TRANSLATED
        assert "vm.yml:1, which was taken" in found.why

    def test_the_python_of_a_handler_is_not_needed_without_a_worker_elsewhere(
        self, write: Write
    ) -> None:
        done = migrated(
            vm=write("vm.yml", INTERPRETER.format("/usr/bin/python3.6")),
            inventory=write("inventory", f"{HEAD}[fabric_worker]\nw1 ansible_connection=local\n"),
        )
        found = said(done, "ansible.ansible_python_interpreter")
        assert (found.kind, found.why) == (
            NoticeKind.NOT_NEEDED,
            "no worker is reached by SSH: no Python is started there",
        )

    def test_an_inventory_without_heads_or_workers_says_so(self, write: Write) -> None:
        done = migrated(inventory=write("inventory", "[kitchen]\npot\n"))
        assert skipped(done) == ["head", "workers", "group kitchen"]
        assert done.clouds == ""

    def test_the_groups_of_a_site_may_have_its_name(self, write: Write, tmp_path: Path) -> None:
        text = "[fabric_site1_worker]\nw1\n[fabric_site1_head]\nhn\n"
        done = migrated(inventory=write("inventory", text))
        assert list(site(done, tmp_path).hosts) == ["w1"]
        assert done.clouds


class TestTheNso:
    NET = "playbooks: {L2PTP: netam_nso_data.yml}\nnetwork: {border_routers: 'a, b'}\n"

    def of(self, inventory: str, write: Write, net: str = NET) -> Migration:
        text = HEAD + WORKER + inventory
        return migrated(net=write("net.yml", net), inventory=write("inventory", text))

    def test_is_reached_by_restconf_at_the_same_address(self, write: Write, tmp_path: Path) -> None:
        nso = site(self.of(NSO, write), tmp_path).services.nso
        assert nso
        assert (nso.url, nso.user) == ("https://127.0.0.5:8888/restconf", "am")
        assert nso.border_routers == ("a", "b")

    def test_its_password_is_typed_into_the_file_that_the_site_names(
        self, write: Write, tmp_path: Path
    ) -> None:
        done = self.of(f"{NSO.rstrip()} password=s3cr3t", write)
        nso = site(done, tmp_path).services.nso
        assert nso
        found = said(done, "password of NSO")
        assert (found.kind, f"> {nso.password_file})" in found.remedy) == (NoticeKind.TO_DO, True)

    def test_the_command_writes_the_first_line_of_that_file(self, run: Run) -> None:
        _type_in(typed_in("print(getpass.getpass())", Path("new/nso-password")), UNTOLD)
        assert Path("new/nso-password").read_text() == f"{UNTOLD}\n"
        assert Path("new/nso-password").stat().st_mode & 0o777 == 0o600

    def test_bursts_keep_their_numbers(self, write: Write, tmp_path: Path) -> None:
        done = self.of(NSO, write)
        loaded = site(done, tmp_path)
        assert loaded.services.nso
        assert loaded.services.nso.burst_unit == loaded.actor.burst_unit
        assert said(done, "services.nso.burst_unit").kind is NoticeKind.TO_DO

    @pytest.mark.parametrize(
        ("variable", "told"),
        [
            ("", True),
            ("validate_certs=false", True),
            ("validate_certs='{{ x }}'", True),
            ("validate_certs=true", False),
        ],
    )
    def test_whose_certificate_was_not_verified_needs_its_authority(
        self, variable: str, told: bool, write: Write
    ) -> None:
        done = self.of(f"{NSO.rstrip()} {variable}", write)
        remedies = [f.remedy for f in done.findings if f.what == "validate_certs"]
        assert ["services.nso.ca_file" in remedy for remedy in remedies] == [True] * told

    @pytest.mark.parametrize(
        ("line", "what", "why"),
        [
            ("username=am", "url", "is not set"),
            ("url= username=am", "url", "has no value"),
            ("url='{{ x }}' username=am", "url", "Jinja2"),
            ("url=nso username=am", "url", "must be http"),
            ("url=https://[::1 username=am", "url", "is not an address"),
            ("url=https://nso/restconf username=am", "url", "does not end with /jsonrpc"),
            ("url=https://nso/jsonrpc", "username", "is not set"),
            ("url=https://nso/jsonrpc username='a b'", "services.nso", "would be refused"),
        ],
    )
    def test_one_that_is_not_known_is_left_to_the_operator(
        self, line: str, what: str, why: str, write: Write, tmp_path: Path
    ) -> None:
        done = self.of(f"[fabric_site_nso]\nnso {line}\n", write)
        found = said(done, what)
        assert (found.kind, why in found.why) == (NoticeKind.NOT_TRANSLATED, True)
        assert site(done, tmp_path).services.nso is None

    @pytest.mark.parametrize("routers", ["{a: b}", "'a b'", "", "'{{ x }}'"])
    def test_border_routers_that_are_none_are_left_out_alone(
        self, routers: str, write: Write, tmp_path: Path
    ) -> None:
        done = self.of(NSO, write, f"network:\n  border_routers: {routers}\n")
        nso = site(done, tmp_path).services.nso
        assert nso
        assert nso.border_routers == ()
        assert len(skipped(done)) == 1

    def test_one_that_is_needed_and_not_there_is_named(self, write: Write) -> None:
        assert "services.nso" in said(self.of("", write), "NSO").remedy

    def test_of_two_the_first_is_taken(self, write: Write, tmp_path: Path) -> None:
        done = self.of(f"{NSO}other url=https://other/jsonrpc username=am\n", write)
        nso = site(done, tmp_path).services.nso
        assert nso
        assert (nso.url, skipped(done)) == ("https://127.0.0.5:8888/restconf", ["NSO other"])

    def test_other_variables_are_named(self, write: Write) -> None:
        done = self.of(f"{NSO.rstrip()} ansible_host=x teapot=1", write)
        assert said(done, "ansible_host").kind is NoticeKind.NOT_NEEDED
        assert said(done, "teapot").kind is NoticeKind.NOT_TRANSLATED


class TestAl2s:
    def of(self, inventory: str, write: Write) -> Migration:
        text = HEAD + WORKER + inventory
        net = write("al2s.yml", "playbooks: {L3VPN: al2s.yml}\n")
        return migrated(al2s=net, inventory=write("inventory", text))

    def test_becomes_a_service_whose_key_is_typed_into_a_file(
        self, write: Write, tmp_path: Path
    ) -> None:
        done = self.of(AL2S, write)
        al2s = site(done, tmp_path).services.al2s
        assert al2s
        assert (al2s.url, al2s.owner) == ("https://127.0.0.6", "i2/netres/x")
        assert f"> {al2s.key_file})" in said(done, "access key of AL2S").remedy
        assert "umask 077" in said(done, "access key of AL2S").remedy
        assert "tokens" in said(done, "api_access_key").why
        assert skipped(done) == []

    @pytest.mark.parametrize(
        ("line", "what", "why"),
        [
            ("ownerPath=x", "base_url", "is not set"),
            ("base_url=al2s ownerPath=x", "base_url", "must be http"),
            ("base_url=https://al2s", "ownerPath", "is not set"),
            ("base_url=https://al2s ownerPath='{{ x }}'", "ownerPath", "Jinja2"),
        ],
    )
    def test_that_is_not_known_is_left_to_the_operator(
        self, line: str, what: str, why: str, write: Write, tmp_path: Path
    ) -> None:
        done = self.of(f"[localhost]\nlocalhost {line}\n", write)
        found = said(done, what)
        assert (found.kind, why in found.why) == (NoticeKind.NOT_TRANSLATED, True)
        assert site(done, tmp_path).services.al2s is None

    def test_that_is_needed_and_not_there_is_named(self, write: Write) -> None:
        assert "services.al2s" in said(self.of("", write), "AL2S").remedy

    def test_of_two_the_first_is_taken(self, write: Write) -> None:
        done = self.of(AL2S + "other base_url=https://other ownerPath=y\n", write)
        assert skipped(done) == ["AL2S other"]


class TestASwitch:
    def test_keeps_its_python(self, write: Write, tmp_path: Path) -> None:
        line = "p4 new_user=t ansible_python_interpreter=/nix/profile/bin/python3.10"
        done = migrated(
            vm=write("vm.yml", INTERPRETER.format("/usr/bin/python3.6")),
            inventory=write("inventory", f"{HEAD}[fabric_p4_switch]\n{line}\n"),
        )
        assert site(done, tmp_path).p4_switches["p4"].python == "/nix/profile/bin/python3.10"
        assert "ansible_python_interpreter" not in {f.what for f in done.findings}

    @pytest.mark.parametrize(
        ("line", "what", "why"),
        [
            ("ansible_host=127.0.0.4", "new_user", "is not set"),
            ("new_user='{{ x }}'", "new_user", "Jinja2"),
            ("new_user=t ansible_host='a b'", "p4_switches.p4", "not a host name"),
            ("new_user='a b'", "p4_switches", "would be refused"),
        ],
    )
    def test_that_is_not_known_is_left_to_the_operator(
        self, line: str, what: str, why: str, write: Write, tmp_path: Path
    ) -> None:
        done = migrated(inventory=write("inventory", f"[fabric_p4_switch]\np4 {line}\n"))
        missed = [f for f in done.findings if f.kind is NoticeKind.NOT_TRANSLATED]
        assert [why in f.why for f in missed if f.what.startswith(what)] == [True]
        assert site(done, tmp_path).p4_switches == {}

    def test_has_sources_as_a_list_of_families_and_addresses(
        self, write: Write, tmp_path: Path
    ) -> None:
        text = (
            "fabric_p4_switch: {hosts: {p4: {new_user: t, allowed_ssh_sources: "
            "[{family: ipv4, address: 192.0.2.0/24}, {family: ipv6, address: '2001:db8::/32'}]}}}"
        )
        done = migrated(inventory=write("inventory.yml", text))
        switch = site(done, tmp_path).p4_switches["p4"]
        assert list(map(str, switch.ssh_sources)) == ["192.0.2.0/24", "2001:db8::/32"]


class TestInventories:
    """What is expected here was compared with what `ansible-inventory --list` says of the same text."""

    def read(self, text: str) -> AnsibleInventory:
        found = AnsibleInventory()
        ini.read(text, "inventory", found)
        return found

    def variables(self, text: str, host: str = "h") -> dict[str, Any]:
        found = self.read(text).variables(host)
        return {name: value.content for name, value in found.items()}

    @pytest.mark.parametrize(
        ("word", "value"),
        [
            ("a=b", "b"),
            ("a='b c'", "b c"),
            ('a="it\'s"', "it's"),
            ("a='\"b\"'", "b"),
            ("a=b#c", "b"),
            ("a=b # c", "b"),
            ("a=b=c", "b=c"),
            ("a=", ""),
            ("a=007", "007"),
            ("a='\"b\\d\"'", r"b\d"),
        ],
    )
    def test_a_hosts_line_is_split_like_a_shells(self, word: str, value: str) -> None:
        assert self.variables(f"[g]\nh {word}") == {"a": value}

    @pytest.mark.parametrize(
        ("line", "value"),
        [("a=b c", "b c"), ("a = 'b c'", "b c"), ("a=b # c", "b # c"), ('a="b', '"b')],
    )
    def test_a_groups_variable_is_all_of_its_line(self, line: str, value: str) -> None:
        assert self.variables(f"[g]\nh\n[g:vars]\n{line}") == {"a": value}

    def test_lines_of_one_host_add_up(self) -> None:
        text = "[g]\nh a=1\nh b=2\n# h c=3\n; h d=4"
        assert self.variables(text) == {"a": "1", "b": "2"}

    def test_the_nearer_a_group_the_more_it_counts(self) -> None:
        text = "[all:vars]\na=all\nb=all\nc=all\nd=all\n[p:children]\ng\n[p:vars]\na=p\nb=p\nc=p\n"
        text += "[g]\nh a=h\n[g:vars]\na=g\nb=g\n"
        assert self.variables(text) == {"a": "h", "b": "g", "c": "p", "d": "all"}

    def test_of_equal_groups_the_last_by_name_counts(self) -> None:
        assert self.variables("[z]\nh\n[b]\nh\n[z:vars]\na=z\n[b:vars]\na=b") == {"a": "z"}

    def test_groups_within_each_other_end(self) -> None:
        found = self.read("[a:children]\nb\n[b:children]\na\n[b]\nh x=1")
        assert found.members("a") == ["h"]
        assert found.variables("h")["x"].content == "1"

    @pytest.mark.parametrize(
        ("pattern", "names"),
        [
            ("w", ["w"]),
            ("w[1:3].x", ["w1.x", "w2.x", "w3.x"]),
            ("w[08:10]", ["w08", "w09", "w10"]),
            ("w[0:6:3]", ["w0", "w3", "w6"]),
            ("w[a:c]", ["wa", "wb", "wc"]),
            ("r[1:2]w[1:2]", ["r1w1", "r1w2", "r2w1", "r2w2"]),
            ("[2001:db8::1]", ["[2001:db8::1]"]),
        ],
    )
    def test_ranges_stand_for_hosts(self, pattern: str, names: list[str]) -> None:
        assert expand(pattern) == names

    @pytest.mark.parametrize("pattern", ["w[3:1]", "w[1:999999999]", "w[1:c]", "w[1:2:0]"])
    def test_ranges_that_stand_for_none_or_too_many_are_refused(self, pattern: str) -> None:
        with pytest.raises(Refused, match=r"^inventory:2: the host's name "):
            self.read(f"[g]\n{pattern}")

    @given(st.integers(0, 500), st.integers(0, 500))
    def test_a_range_of_numbers_has_both_its_ends(self, first: int, more: int) -> None:
        names = expand(f"w[{first}:{first + more}]")
        assert (names[0], names[-1], len(names)) == (f"w{first}", f"w{first + more}", more + 1)

    @pytest.mark.parametrize(
        ("text", "wrong"),
        [
            ("[g]\nh a=1 b", "inventory:2: must be name=value"),
            ("[g]\nh a='1", "inventory:2: has a quotation mark that is not closed"),
            ("\n[g", "inventory:2: must be [group], [group:vars] or [group:children]"),
            (
                "[g:teapot]",
                "inventory:1: […:teapot] is not a part of a group; known: vars, children",
            ),
            ("[g:vars]\na", "inventory:2: must be name=value"),
            ("[g:children]\na b", "inventory:2: must be the name of one group"),
        ],
    )
    def test_a_broken_line_is_named_and_not_shown(self, text: str, wrong: str) -> None:
        with pytest.raises(Refused) as refusal:
            self.read(text)
        assert str(refusal.value) == wrong

    def test_a_name_of_very_many_ranges_is_refused(self) -> None:
        with pytest.raises(Refused, match="longer than"):
            self.read("[g]\nw" + "[1:1]" * 5000)

    def test_a_long_text_of_nothing_is_read_at_once(self) -> None:
        blank = "\n" * 500_000
        self.read(blank)
        assert parse_document(blank, "i.yml").values() == {}
        assert parse_document(f"{blank}g: 1", "i.yml").values().keys() == {"g"}

    @given(st.text())
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        try:
            self.read(text)
        except Refused as refusal:
            assert re.match(r"inventory:\d+: ", str(refusal))  # noqa: PT017 - or nothing is raised

    def test_the_yaml_form_says_the_same(self, write: Write) -> None:
        text = """
            all:
              vars: {username: admin}
              children:
                fabric_worker:
                  children: {fabric_site_worker: {hosts: {"w[1:2]": {ansible_user: am}}}}
                fabric_head: {hosts: {hn: }}
        """
        same = "[all:vars]\nusername=admin\n[fabric_worker:children]\nfabric_site_worker\n"
        same += "[fabric_site_worker]\nw[1:2] ansible_user=am\n[fabric_head]\nhn\n"
        of_yaml = migrated(inventory=write("a.yml", text))
        of_ini = migrated(inventory=write("a", same))
        assert (of_yaml.site, of_yaml.clouds) == (of_ini.site, of_ini.clouds)
        assert "username: admin" in of_yaml.clouds

    def test_a_directory_is_all_of_its_files(self, write: Write, tmp_path: Path) -> None:
        write("inv/10-head", HEAD)
        write("inv/20-workers.yml", "fabric_worker: {hosts: {w1: , w2: {ansible_port: 22}}}")
        write("inv/notes.txt", "not read")
        write("inv/group_vars/fabric_worker.yml", "ansible_user: root\nansible_port: 2201")
        write("inv/group_vars/all/a.yml", "---\n# nothing\n")
        write("inv/host_vars/w2", "ansible_port: 2202")
        hosts = site(migrated(inventory=tmp_path / "inv"), tmp_path).hosts
        assert [host.ssh for host in hosts.values()] == ["ssh://root@w1:2201", "ssh://root@w2:2202"]

    def test_a_program_is_not_run(self, write: Write, tmp_path: Path) -> None:
        script = write("inv/dynamic", f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        script.chmod(0o755)
        done = migrated(inventory=tmp_path / "inv")
        assert "is a program" in said(done, "the file").why
        assert not (tmp_path / "ran").exists()

    def test_a_plugin_is_not_asked(self, write: Write) -> None:
        done = migrated(inventory=write("openstack.yml", "plugin: openstack.cloud.openstack"))
        assert "ansible-inventory --list" in said(done, "plugin").remedy

    @pytest.mark.parametrize(
        ("text", "line"),
        [("g: {hosts: [h]}", 1), ("g:\n  host: {}", 2), ("- g", 1), ("g:\n  hosts:\n    h: 1", 3)],
    )
    def test_yaml_of_another_form_is_refused_by_line(self, text: str, line: int) -> None:
        from fabric_direct.migration import tree  # noqa: PLC0415 - the name is short elsewhere

        with pytest.raises(Refused, match=rf"^i\.yml:{line}: "):
            tree.read(parse_document(text, "i.yml"), AnsibleInventory())


class TestTheAuditOfFabricCf:
    """It deletes servers by the files of fabric_am as long as it finds them."""

    WHAT = "audit of fabric_cf"
    PLAYBOOKS = (
        "playbooks:\n  location: /p\n  inventory_location: /p/inventory\n"
        "  VM: head_vm_provisioning.yml\n"
    )
    ACTOR = (
        "actor:\n  resources:\n  - resource:\n      type: VM\n      handler:\n"
        "        module: fabric_am.handlers.vm_handler\n        class: VMHandler\n"
        "        properties: {config.properties.file: /etc/vm.yml}\n"
    )

    def test_is_named_with_what_it_deletes_and_how_to_stop_it(self, write: Write) -> None:
        notice = said(migrated(vm=write("vm.yml", self.PLAYBOOKS)), self.WHAT)

        assert notice.kind is NoticeKind.TO_DO
        assert str(notice.place).endswith("vm.yml:4")
        assert "audit.py" in notice.why
        assert "every domain that OpenStack does not list" in notice.why
        assert "leave vm_handler_config.yml out of the container" in notice.remedy

    def test_is_named_by_the_actors_configuration_alone(self, write: Write) -> None:
        notice = said(migrated(actor_config=write("config.yml", self.ACTOR)), self.WHAT)

        assert str(notice.place).endswith("config.yml:8")

    def test_is_named_once(self, write: Write) -> None:
        both = migrated(vm=write("vm.yml", self.PLAYBOOKS), actor_config=write("c.yml", self.ACTOR))

        assert str(said(both, self.WHAT).place).endswith("vm.yml:4")

    @pytest.mark.parametrize("without", ["location: /p\n", "VM: head_vm_provisioning.yml\n"])
    def test_is_not_named_where_it_has_nothing_to_delete_by(
        self, write: Write, without: str
    ) -> None:
        done = migrated(net=write("net.yml", self.PLAYBOOKS.replace(without, "Other: x.yml\n")))

        assert self.WHAT not in {finding.what for finding in done.findings}


class TestTheResourceModel:
    """What reads it is not where the unit tests run: tests/fabric has the rest."""

    def test_is_refused_where_fim_is_not_installed_and_nothing_is_written(
        self, write: Write, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "fim", None)

        result = run("--arm", EXAMPLES / "arm.graphml", "--output", "new")

        assert result.exit_code == 2
        assert "is read by fabric-fim, which is not installed" in result.stderr
        assert "pip install fabric-fim" in result.stderr
        assert not Path("new").exists()


class TestTheGuide:
    GUIDE = Path(__file__).parents[2] / "docs" / "migrating.md"

    def shown(self, command: str) -> list[str]:
        """Return what the guide shows as a command's output."""
        found = re.search(
            rf"^\$ {re.escape(command)}.*\n((?s:.*?))^```", self.GUIDE.read_text(), re.MULTILINE
        )
        assert found
        return found[1].splitlines()

    def test_shows_what_the_command_says(self, run: Run) -> None:
        shutil.copytree(EXAMPLES, Path(), dirs_exist_ok=True)
        said = run(
            *("--vm", "vm_handler_config.yml", "--vnic", "vnic_net_handler_config.yml"),
            *("--net", "net_handler_config.yml", "--al2s", "al2s_handler_config.yml"),
            *("--switch", "switch_handler_config.yml"),
            *("--inventory", "inventory", "--actor-config", "config.yml", "--output", "new"),
        )
        *lines, dots = self.shown("fabric-direct migrate")
        assert said.stdout.splitlines()[: len(lines)] == lines
        assert dots == "…"
        assert Path("new/site.yaml").read_text().splitlines() == self.shown("cat new/site.yaml")
        commands = re.findall(r"run this, and type it in: (.*)", said.stdout)
        assert len(commands) == 3
        assert all(f"$ {command}\n" in self.GUIDE.read_text() for command in commands)


class TestTheCommand:
    def test_is_listed_and_explains_itself(self) -> None:
        assert "\n  migrate " in CliRunner().invoke(main, ["--help"]).output
        assert "--inventory" in CliRunner().invoke(main, ["migrate", "-h"]).output

    @pytest.fixture
    def inventory(self, write: Write) -> Path:
        return write("inventory", HEAD)

    def test_prints_both_files_and_says_the_rest_on_stderr(self, inventory: Path, run: Run) -> None:
        result = run("--inventory", inventory)
        site, clouds = yaml.safe_load_all(result.stdout)
        assert (site["site"], list(clouds["clouds"])) == ("hn", ["hn"])
        assert "to do\n" in result.stderr
        assert list(Path().iterdir()) == []

    def test_writes_them_into_a_directory(self, inventory: Path, run: Run) -> None:
        result = run("--inventory", inventory, "--output", "new")
        assert "wrote new/site.yaml\nwrote new/clouds.yaml\n" in result.stdout
        assert load_site(Path("new/site.yaml")).site == "hn"
        assert {path.name for path in Path("new").iterdir()} == {"site.yaml", "clouds.yaml"}

    def test_overwrites_nothing_unless_it_is_forced_to(self, inventory: Path, run: Run) -> None:
        Path("clouds.yaml").write_text("mine")
        refused = run("--inventory", inventory, "--output", ".")
        assert (refused.exit_code, "clouds.yaml: there already" in refused.stderr) == (2, True)
        assert Path("clouds.yaml").read_text() == "mine"
        assert not Path("site.yaml").exists()

        run("--inventory", inventory, "--output", ".", "--force")
        assert "auth_url" in Path("clouds.yaml").read_text()

    def test_says_all_as_json(self, inventory: Path, run: Run) -> None:
        told = result_of(run("--inventory", inventory, "--json").stdout)
        assert set(told) == {"written", "documents", "findings"}
        assert yaml.safe_load(told["documents"]["site.yaml"])["site"] == "hn"

    def test_ends_with_3_if_something_was_not_translated(self, write: Write, run: Run) -> None:
        whole = run("--inventory", write("a", HEAD + WORKER))
        partly = run("--inventory", write("b", HEAD))
        assert (whole.exit_code, partly.exit_code) == (0, 3)

    def test_needs_a_file(self, run: Run) -> None:
        result = run("--output", "new")
        assert (result.exit_code, "at least one" in result.stderr) == (2, True)

    @pytest.mark.parametrize(
        "option", ["--vm", "--vnic", "--net", "--al2s", "--switch", "--inventory", "--actor-config"]
    )
    def test_a_file_that_is_not_there_is_bad_input(self, option: str, run: Run) -> None:
        result = run(option, "gone.yml", "--output", "new")
        assert (result.exit_code, "cannot read gone.yml" in result.stderr) == (2, True)
        assert not Path("new").exists()

    @pytest.mark.parametrize(
        ("option", "text", "where"),
        [
            ("--vm", "runtime:\n  images: [a]", "f.yml:2: runtime.images: must be a mapping"),
            ("--vm", "runtime:\n\tx: 1", "f.yml:2: this line has a tab"),
            ("--vnic", "playbooks: 5", "f.yml:1: playbooks: must be a mapping"),
            (
                "--actor-config",
                "actor:\n  resources: {}",
                "f.yml:2: actor.resources: must be a list",
            ),
            ("--actor-config", "actor:\n  name: []", "f.yml:2: actor.name: must be a single value"),
        ],
    )
    def test_a_broken_file_is_named_with_its_line(
        self, option: str, text: str, where: str, write: Write, run: Run
    ) -> None:
        result = run(option, write("f.yml", text))
        assert (result.exit_code, where in result.stderr) == (2, True)
