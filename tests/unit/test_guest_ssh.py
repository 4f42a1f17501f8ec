"""The SSH driver against a real dropbear on a loopback port, with a home directory of its own."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest
from pytest_mock import MockerFixture

from fabric_direct.calls.deadline import Deadline, wait_until
from fabric_direct.drivers.contract import CommandResult, GuestAddress, GuestInterface
from fabric_direct.drivers.guests import ssh as guest_ssh
from fabric_direct.drivers.guests.ssh import SshGuest
from fabric_direct.drivers.ssh.known_hosts import known_hosts, pin, pinned, pinned_addresses, unpin
from fabric_direct.errors import (
    DriverError,
    InvalidSite,
    NotVerified,
    Refused,
    TimedOut,
    Unreachable,
)
from fabric_direct.site.config import GuestSettings, Limits, Site
from fabric_direct.testing import GuestContract
from tests.functional.ssh_server import USER, Server, new_key, ssh_server

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB8eHRwbGhkYFxYVFBMSERAPDg0MCwoJCAcGBQQDAgEA"
GUEST = GuestAddress("sliver", "sliver-node", USER, ("127.0.0.1",))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ssh_server(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(scope="module")
def identity(server: Server) -> str:
    return " ".join(server.identity.with_suffix(".pub").read_text().split()[:2])


@pytest.fixture
def site(server: Server, identity: str, tmp_path: Path, mocker: MockerFixture) -> Site:
    """A site whose key the server lets in and whose guests listen on the server's port."""
    mocker.patch.object(guest_ssh, "PORT", server.port)
    server.keys.write_text(f"# ours\n{identity} site\n")
    return Site(
        site="TEST", state_dir=tmp_path, guest_access=GuestSettings(ssh_key=server.identity)
    )


@pytest.fixture
def ssh(site: Site, server: Server) -> SshGuest:
    pin(site, f"[127.0.0.1]:{server.port}", server.host_key)
    return SshGuest(site, "localhost")


def test_a_guest_whose_host_key_is_pinned_answers(ssh: SshGuest) -> None:
    assert ssh.ping(GUEST)
    ssh.wait(GUEST, timeout=0)


def test_the_host_key_is_the_pinned_one(ssh: SshGuest, server: Server) -> None:
    assert ssh.ssh_host_key(GUEST) == server.host_key


def test_a_guest_without_a_pinned_host_key_is_not_logged_in_to(
    site: Site, mocker: MockerFixture
) -> None:
    connect = mocker.patch("paramiko.SSHClient.connect")
    ssh = SshGuest(site, "localhost")

    with pytest.raises(Unreachable, match=r"no host key is pinned .*pin it"):
        ssh.wait(GUEST, timeout=60)

    assert not ssh.ping(GUEST)
    connect.assert_not_called()


def test_a_changed_host_key_is_an_error_that_says_so(site: Site, server: Server) -> None:
    pin(site, f"[127.0.0.1]:{server.port}", KEY)

    with pytest.raises(DriverError, match="is not the pinned one") as refusal:
        SshGuest(site, "localhost").wait(GUEST, timeout=60)

    assert not isinstance(refusal.value, Unreachable)


def test_of_several_addresses_the_first_with_a_pinned_key_is_used(ssh: SshGuest) -> None:
    assert ssh.ping(GuestAddress("sliver", "sliver-node", USER, ("192.0.2.1", "127.0.0.1")))


def test_an_address_that_does_not_answer_is_passed_over(
    site: Site, ssh: SshGuest, server: Server
) -> None:
    pin(site, f"[127.0.0.9]:{server.port}", server.host_key)
    assert ssh.ping(GuestAddress("sliver", "sliver-node", USER, ("127.0.0.9", "127.0.0.1")))


class TestContract(GuestContract):
    @pytest.fixture
    def driver(self, ssh: SshGuest) -> SshGuest:
        return ssh

    @pytest.fixture
    def guest(self, tmp_path: Path, mocker: MockerFixture) -> GuestAddress:
        """This machine, whose boot is marked as finished."""
        (tmp_path / "boot-finished").touch()
        mocker.patch.object(guest_ssh, "BOOT_FINISHED", str(tmp_path / "boot-finished"))
        return GUEST

    @pytest.fixture
    def absent(self) -> GuestAddress:
        return GuestAddress("absent", "absent-node", USER, ("127.0.0.9",))

    @pytest.fixture(autouse=True)
    def pinned_again(self, nothing_left: None, site: Site, server: Server) -> Iterator[None]:
        """Pin the key that a test may forget, so that the suite's own fixture can log in."""
        yield
        pin(site, f"[127.0.0.1]:{server.port}", server.host_key)


def test_it_is_seen_without_logging_in_whether_a_guest_listens(ssh: SshGuest) -> None:
    wait_until("it to listen", lambda: ssh.listens(GUEST), timeout=60)
    absent = GuestAddress("sliver", "sliver-node", USER, ("127.0.0.9",))
    assert not any(ssh.listens(absent) for _ in range(20))
    assert not ssh.listens(GuestAddress("sliver", "sliver-node", USER))
    ssh.forget(GUEST)


def test_one_connection_serves_one_command_after_the_other(
    ssh: SshGuest, mocker: MockerFixture
) -> None:
    connect = mocker.spy(paramiko.SSHClient, "connect")

    for _ in range(3):
        assert ssh.run(GUEST, ("true",), timeout=60).code == 0

    assert connect.call_count == 1


def test_a_guest_that_does_not_listen_is_unreachable(
    site: Site, server: Server, mocker: MockerFixture
) -> None:
    mocker.patch.object(guest_ssh, "PORT", 1)
    pin(site, "[127.0.0.1]:1", server.host_key)
    ssh = SshGuest(site, "localhost")

    assert not ssh.ping(GUEST)
    with pytest.raises(Unreachable, match="does not answer"):
        ssh.wait(GUEST, timeout=0.1)
    with pytest.raises(Unreachable, match="cannot log in to guest sliver-node"):
        ssh.run(GUEST, ("true",), timeout=60)


def test_a_guest_that_does_not_have_the_sites_key_is_unreachable(
    ssh: SshGuest, server: Server
) -> None:
    server.keys.write_text(f"{KEY}\n")

    assert not ssh.ping(GUEST)
    with pytest.raises(Unreachable, match=r"Authentication failed.*the site's key"):
        ssh.run(GUEST, ("true",), timeout=60)


def test_a_server_that_says_nothing_is_given_up(
    site: Site, server: Server, mocker: MockerFixture
) -> None:
    limits = Limits(guest_boot=0.4)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        mocker.patch.object(guest_ssh, "PORT", port)
        pin(site, f"[127.0.0.1]:{port}", server.host_key)

        assert not SshGuest(site.model_copy(update={"limits": limits}), "localhost").ping(GUEST)


def test_the_remote_shell_gets_every_argument_quoted(ssh: SshGuest) -> None:
    hostile = "$(touch x) `id` 'quoted' \"twice\" ; \\ * ~ \n ü"

    result = ssh.run(GUEST, ("printf", "%s", hostile), timeout=60)

    assert result == CommandResult(0, hostile.encode())


def test_a_command_reads_its_input_and_reports_code_and_both_outputs(ssh: SshGuest) -> None:
    script = "cat; echo wrong >&2; exit 3"

    result = ssh.run(GUEST, ("sh", "-c", script), b"\x00\xffbytes", timeout=60)

    assert result == CommandResult(3, b"\x00\xffbytes", b"wrong\n")


def test_much_input_and_much_output_on_both_sides_do_not_block(ssh: SshGuest) -> None:
    data = bytes(range(256)) * 16_384

    result = ssh.run(GUEST, ("sh", "-c", "tee /dev/stderr"), data, timeout=120)

    assert result == CommandResult(0, data, data)


def test_a_command_that_leaves_its_input_is_no_error(ssh: SshGuest) -> None:
    assert ssh.run(GUEST, ("true",), bytes(4 << 20), timeout=60).code == 0


def test_a_command_that_does_not_end_is_not_waited_for(ssh: SshGuest) -> None:
    assert ssh.ping(GUEST)  # to log in may take longer
    with pytest.raises(TimedOut, match="did not end in time"):
        ssh.run(GUEST, ("sleep", "30"), timeout=0.3)


def test_a_connection_that_is_gone_when_the_time_is_over_ends_the_command_all_the_same(
    mocker: MockerFixture,
) -> None:
    over, client = threading.Event(), mocker.Mock(spec=paramiko.SSHClient)
    channel = client.get_transport.return_value.open_session.return_value

    def gone() -> None:
        over.set()
        raise EOFError

    channel.close.side_effect = gone
    channel.exec_command.side_effect = lambda _: over.wait(60)
    mocker.patch.object(guest_ssh, "_communicate", return_value=CommandResult(0))
    with pytest.raises(TimedOut):
        guest_ssh._run(client, "sleep 9", b"", Deadline.within(0.05))
    for timer in [t for t in threading.enumerate() if isinstance(t, threading.Timer)]:
        timer.join(60)


def test_the_end_of_the_boot_is_seen_by_its_mark(
    ssh: SshGuest, tmp_path: Path, mocker: MockerFixture
) -> None:
    mark = tmp_path / "boot-finished"
    mocker.patch.object(guest_ssh, "BOOT_FINISHED", str(mark))
    assert ssh.boot_finished(GUEST) is False

    mark.touch()

    assert ssh.boot_finished(GUEST) is True


def test_an_added_key_is_there_once_and_all_else_stays(ssh: SshGuest, server: Server) -> None:
    before = server.keys.read_text()

    ssh.add_keys(GUEST, (f"{KEY} first",))
    ssh.add_keys(GUEST, (f"{KEY} again",))

    assert server.keys.read_text() == f"{before}{KEY} first\n"
    assert server.keys.stat().st_mode & 0o777 == 0o600


def test_a_removed_key_is_gone_with_its_options_and_comment(ssh: SshGuest, server: Server) -> None:
    before = server.keys.read_text()
    server.keys.write_text(f'{before}no-pty,command="a b" {KEY} first\n{OTHER} stays\n')

    ssh.remove_keys(GUEST, (f"{KEY} by-another-name",))
    ssh.remove_keys(GUEST, (KEY,))

    assert server.keys.read_text() == f"{before}{OTHER} stays\n"


def test_a_last_line_without_its_end_is_not_run_together_with_a_new_key(
    ssh: SshGuest, server: Server, identity: str
) -> None:
    server.keys.write_text(identity)

    ssh.add_keys(GUEST, (KEY,))

    assert ssh.authorized_keys(GUEST) == (identity, KEY)


def test_comments_in_any_encoding_are_kept(ssh: SshGuest, server: Server, identity: str) -> None:
    old = f"{identity} Andr".encode() + b"\xe9\n"
    server.keys.write_bytes(old)

    ssh.add_keys(GUEST, (KEY,))

    assert server.keys.read_bytes() == old + f"{KEY}\n".encode()


def test_a_user_without_a_keys_file_has_no_keys(ssh: SshGuest, mocker: MockerFixture) -> None:
    mocker.patch.object(guest_ssh, "KEYS_FILE", ".ssh/absent")

    assert ssh.authorized_keys(GUEST) == ()


def test_a_write_that_broke_off_leaves_the_old_keys(ssh: SshGuest, server: Server) -> None:
    before = server.keys.read_text()
    argv = ("sh", "-c", guest_ssh._WRITE_KEYS, "sh", "100")

    assert ssh.run(GUEST, argv, b"half a", timeout=60).code != 0

    assert server.keys.read_text() == before


def test_a_file_that_cannot_be_written_fails_in_the_guests_words(
    ssh: SshGuest, mocker: MockerFixture
) -> None:
    mocker.patch.object(guest_ssh, "_WRITE_KEYS", "echo no space left >&2; exit 1")

    with pytest.raises(DriverError, match=r"sh failed in guest sliver-node.*no space left"):
        ssh.add_keys(GUEST, (KEY,))


def test_a_file_that_is_not_changed_is_no_success(ssh: SshGuest, mocker: MockerFixture) -> None:
    mocker.patch.object(guest_ssh, "_WRITE_KEYS", "cat >/dev/null")

    with pytest.raises(NotVerified):
        ssh.add_keys(GUEST, (KEY,))


def test_what_is_no_key_is_neither_added_nor_taken_for_a_comment(
    ssh: SshGuest, server: Server
) -> None:
    before = server.keys.read_text()

    with pytest.raises(NotVerified):
        ssh.add_keys(GUEST, ("ssh-ed25519 nonsense",))

    assert server.keys.read_text() == before


def test_the_interfaces_are_read_without_the_loopback(ssh: SshGuest) -> None:
    def links() -> set[str]:
        return {path.name for path in Path("/sys/class/net").iterdir()}

    before = links()
    found = {nic.name for nic in ssh.interfaces(GUEST)}

    assert found <= before | links()  # others make and remove links meanwhile
    assert "lo" not in found


def test_an_interface_that_goes_while_it_is_read_is_left_out(
    ssh: SshGuest, mocker: MockerFixture
) -> None:
    read = CommandResult(0, b"eth0 52:54:00:00:00:01\nvnet5 \n--\n")
    mocker.patch.object(ssh, "run", return_value=read)

    assert [nic.name for nic in ssh.interfaces(GUEST)] == ["eth0"]


def test_the_addresses_come_with_their_prefix_by_one_command(
    ssh: SshGuest, mocker: MockerFixture
) -> None:
    answer = (
        b"eth0 52:54:00:00:00:01\neth1 52:54:00:00:00:02\nlo 00:00:00:00:00:00\n--\n"
        b"1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever\n"
        b"2: eth0    inet 192.0.2.7/28 brd 192.0.2.15 scope global eth0\\       valid_lft forever\n"
        b"2: eth0    inet6 fe80::5054:ff:fe00:1/64 scope link \\       valid_lft forever\n"
    )
    run = mocker.patch.object(SshGuest, "run", return_value=CommandResult(0, answer))

    assert ssh.interfaces(GUEST) == (
        GuestInterface("eth0", "52:54:00:00:00:01", ("192.0.2.7/28", "fe80::5054:ff:fe00:1/64")),
        GuestInterface("eth1", "52:54:00:00:00:02"),
    )
    run.assert_called_once()


def test_a_site_without_a_key_of_its_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSite, match=r"guest_access\.ssh_key"):
        SshGuest(Site(site="TEST", state_dir=tmp_path), "localhost")


@pytest.mark.parametrize("content", [None, "", "no key"])
def test_a_site_key_that_cannot_be_read_is_the_sites_error(
    site: Site, server: Server, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    pin(site, f"[127.0.0.1]:{server.port}", server.host_key)
    broken = site.model_copy(update={"guest_access": GuestSettings(ssh_key=path)})

    with pytest.raises(InvalidSite, match=r"guest_access\.ssh_key: .* cannot be read"):
        SshGuest(broken, "localhost").ping(GUEST)


@pytest.fixture
def bare(tmp_path: Path) -> Site:
    return Site(site="TEST", state_dir=tmp_path)


def test_a_pinned_key_is_in_the_file_of_the_site_for_its_owner_alone(bare: Site) -> None:
    pin(bare, "192.0.2.7", f"{KEY} comment")

    assert known_hosts(bare) == bare.state_dir / "known_hosts"
    assert known_hosts(bare).read_text() == f"192.0.2.7 {KEY}\n"
    assert known_hosts(bare).stat().st_mode & 0o777 == 0o600


def test_the_file_may_be_named_by_the_site(bare: Site, tmp_path: Path) -> None:
    elsewhere = GuestSettings(known_hosts=tmp_path / "pinned")
    site = bare.model_copy(update={"guest_access": elsewhere})

    pin(site, "192.0.2.7", KEY)

    assert (tmp_path / "pinned").read_text() == f"192.0.2.7 {KEY}\n"


def test_a_new_key_of_an_address_replaces_its_old_one_and_no_other(bare: Site) -> None:
    pin(bare, "192.0.2.7", KEY)
    pin(bare, "192.0.2.70", KEY)

    pin(bare, "192.0.2.7", OTHER)

    assert known_hosts(bare).read_text() == f"192.0.2.70 {KEY}\n192.0.2.7 {OTHER}\n"


def test_all_pinned_addresses_are_told_and_names_and_hashes_are_not(bare: Site) -> None:
    pin(bare, "10.0.0.5", KEY)
    pin(bare, "[fd00::5]:2222", KEY)
    path = known_hosts(bare)
    hashed = paramiko.HostKeys.hash_host("10.0.0.9")
    path.write_text(f"{path.read_text()}worker1 {KEY}\n{hashed} {KEY}\n")

    assert set(pinned_addresses(bare)) == {"10.0.0.5", "fd00::5"}


def test_an_unpinned_address_is_gone_and_unpinning_it_again_succeeds(bare: Site) -> None:
    pin(bare, "192.0.2.7", KEY)
    pin(bare, "192.0.2.8", KEY)

    unpin(bare, "192.0.2.7")
    unpin(bare, "192.0.2.7")

    assert known_hosts(bare).read_text() == f"192.0.2.8 {KEY}\n"


@pytest.mark.parametrize(
    "key", ["", "ssh-ed25519", "ssh-ed25519 !!!!", f"x\n192.0.2.9 {KEY}", "ssh-nonsense AAAA"]
)
def test_what_is_no_public_key_is_not_pinned(bare: Site, key: str) -> None:
    with pytest.raises(Refused, match="not a public key"):
        pin(bare, "192.0.2.7", key)

    assert not known_hosts(bare).exists()


def test_many_threads_pin_without_losing_a_line(bare: Site) -> None:
    addresses = [f"192.0.2.{number}" for number in range(16)]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda address: pin(bare, address, KEY), addresses))

    lines = known_hosts(bare).read_text().splitlines()
    assert sorted(lines) == sorted(f"{address} {KEY}" for address in addresses)


def test_a_guest_that_writes_without_end_is_cut_off(ssh: SshGuest) -> None:
    with pytest.raises(DriverError, match="writes too much"):
        ssh.run(GUEST, ("cat", "/dev/zero"), timeout=60)


@pytest.mark.parametrize(
    "answer", [b"5", b"eth0\n--\n", b"eth0 52:54:00:00:00:01\n--\n2: eth0", b"\xff"]
)
def test_a_guest_that_answers_nonsense_is_an_error_of_its_own(
    ssh: SshGuest, mocker: MockerFixture, answer: bytes
) -> None:
    mocker.patch.object(ssh, "run", return_value=CommandResult(0, answer, b""))

    with pytest.raises(DriverError, match="sent an invalid response"):
        ssh.interfaces(GUEST)


SHOWN = """
[    2.1] booting
-----BEGIN SSH HOST KEY KEYS-----
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDx root@node
{key} root@node
-----END SSH HOST KEY KEYS-----
node login:
"""


class TestLearning:
    """The console is where a guest shows its host key without the network."""

    @pytest.fixture
    def guest(self) -> GuestAddress:
        return GuestAddress("sliver", "sliver-node", "root", ("10.0.0.5", "fd00::5"))

    def test_the_key_that_the_console_shows_is_pinned_to_all_addresses(
        self, ssh: SshGuest, guest: GuestAddress, tmp_path: Path
    ) -> None:
        key = " ".join(new_key(tmp_path / "host").split()[:2])

        assert ssh.learn(guest, SHOWN.format(key=key))

        assert ssh.pins(guest) == guest.addresses

    def test_what_is_forgotten_is_pinned_no_more(
        self, ssh: SshGuest, guest: GuestAddress, tmp_path: Path
    ) -> None:
        ssh.learn(guest, SHOWN.format(key=new_key(tmp_path / "host").strip()))

        ssh.forget(guest)

        assert ssh.pins(guest) == ()

    def test_is_trusted_where_the_guest_listens(
        self, ssh: SshGuest, server: Server, site: Site
    ) -> None:
        ssh.forget(GUEST)

        assert ssh.learn(GUEST, SHOWN.format(key=server.host_key))

        assert [*pinned(site)] == [f"[127.0.0.1]:{server.port}"]
        assert ssh.ping(GUEST)

    @pytest.mark.parametrize(
        "console",
        [
            "",
            "node login:",
            "-----BEGIN SSH HOST KEY KEYS-----\nssh-ed25519 AAAA",
            "-----BEGIN SSH HOST KEY KEYS-----\nno key\n-----END SSH HOST KEY KEYS-----",
        ],
    )
    def test_a_console_that_shows_no_key_teaches_nothing(
        self, ssh: SshGuest, guest: GuestAddress, console: str
    ) -> None:
        assert not ssh.learn(guest, console)

    def test_the_public_part_of_the_sites_key_is_what_guests_must_let_in(
        self, ssh: SshGuest, identity: str
    ) -> None:
        (key,) = ssh.keys

        assert key.split()[:2] == identity.split()[:2]


@pytest.mark.parametrize(
    "content",
    [
        b"192.0.2.7 ssh-rsa A\n",
        b"192.0.2.7 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAAA==\n",
        b"\xff\xfe x y\n",
    ],
)
def test_a_file_of_pinned_keys_that_cannot_be_read_is_named(bare: Site, content: bytes) -> None:
    known_hosts(bare).parent.mkdir(parents=True, exist_ok=True)
    known_hosts(bare).write_bytes(content)

    with pytest.raises(DriverError, match="known host keys"):
        pinned(bare)


def test_lines_that_are_no_text_stay_when_a_key_is_pinned(bare: Site) -> None:
    known_hosts(bare).parent.mkdir(parents=True, exist_ok=True)
    known_hosts(bare).write_bytes(b"# \xff\n")

    pin(bare, "192.0.2.7", KEY)

    assert known_hosts(bare).read_bytes() == f"# \xff\n192.0.2.7 {KEY}\n".encode("latin-1")


def test_what_is_no_key_of_its_algorithm_is_not_pinned(bare: Site) -> None:
    with pytest.raises(Refused):
        pin(bare, "192.0.2.7", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAAA==")
