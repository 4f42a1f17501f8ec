"""A real SSH server on a loopback port: dropbear, whose user's home is a directory of the test's own."""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import paramiko
import pytest
from pyroute2 import netns as namespaces

from fabric_direct.calls.deadline import wait_until
from fabric_direct.site.config import Host, Site
from tests.ports import free_port

USER = pwd.getpwuid(os.geteuid()).pw_name


@dataclass(frozen=True)
class Server:
    """A running dropbear."""

    port: int
    host_key: str
    home: Path
    identity: Path
    """The private key that it lets in."""

    @property
    def keys(self) -> Path:
        return self.home / ".ssh" / "authorized_keys"

    def let_in(self, options: str = "") -> None:
        """Let our key in, with options as ``command="…"``."""
        self.keys.write_text(f"{options} {self.identity.with_suffix('.pub').read_text()}".lstrip())

    def site(self, state: Path, **changes: object) -> Site:
        """Return a site whose worker is this machine, by SSH."""
        host = {
            "ssh": f"ssh://{USER}@127.0.0.1:{self.port}",
            "ssh_key": self.identity,
            "host_key": self.host_key,
        }
        return Site(site="TEST", state_dir=state, hosts={"w1": Host(**host | changes)})


@contextmanager
def ssh_server(directory: Path) -> Iterator[Server]:
    """Run a server that lets one key in."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("dropbear", "dropbearkey", "unshare"))):
        pytest.skip("needs root, unshare, and dropbear (Debian: dropbear-bin)")
    home, host_key = directory / "home", directory / "host"
    home.mkdir(0o700)
    (home / ".ssh").mkdir(0o700)
    server = Server(free_port(), make_host_key(host_key), home, directory / "identity")
    new_key(server.identity)
    server.let_in()
    process = start_dropbear(server, host_key)
    try:
        yield server
    finally:
        process.terminate()
        process.wait()


def start_dropbear(server: Server, host_key: Path) -> "subprocess.Popen[bytes]":
    """Start the program of a server; return when it listens.

    The Pythons of pyenv and uv stay where they are. The locale is C, as where nothing sets one.
    """
    script = """
        for kept in .pyenv .local; do
          if [ -d ~/$kept ]; then mkdir -p "$1/$kept" && mount -o bind,ro ~/$kept "$1/$kept"; fi
        done
        mount --rbind "$1" ~ && exec dropbear -F -E -s -r "$2" -P "$2.pid" -p "127.0.0.1:$3"
    """
    _share_network_namespaces()
    unshare = ["unshare", "--mount", "--propagation=slave"]
    command = [*unshare, "sh", "-c", script, "sh", server.home, host_key, str(server.port)]
    env = {k: v for k, v in os.environ.items() if k != "LANG" and not k.startswith("LC_")}
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=env)
    wait_until("dropbear to listen", lambda: _listens(server.port), timeout=60)
    return process


def _share_network_namespaces() -> None:
    """Have the server see the network namespaces that are made later.

    Making the first one is what makes their directory a mount whose changes others see.
    """
    name = f"fdtest-ssh-{os.getpid()}"
    namespaces.create(name)
    namespaces.remove(name)


def new_host_key() -> str:
    """Return a public key that no server has."""
    key = paramiko.ECDSAKey.generate()
    return f"{key.get_name()} {key.get_base64()}"


def make_host_key(path: Path) -> str:
    """Make a host key for dropbear; return its public half."""
    command = ["dropbearkey", "-t", "ed25519", "-f", path]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    public = next(line for line in made.splitlines() if line.startswith("ssh-ed25519"))
    return " ".join(public.split()[:2])


def new_key(path: Path) -> str:
    """Make a key pair and return the public line, without a comment.

    Of an elliptic curve: to load an RSA key, which paramiko does twice, takes 50 ms.
    """
    key = paramiko.ECDSAKey.generate()
    key.write_private_key_file(str(path))
    public = f"{key.get_name()} {key.get_base64()}"
    path.with_suffix(".pub").write_text(f"{public} site\n")
    return public


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
