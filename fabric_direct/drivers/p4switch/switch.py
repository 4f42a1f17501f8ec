"""Actions on a switch over SSH: each is a script that can be run again after a kill."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from urllib.parse import urlsplit

import paramiko

from fabric_direct.calls.deadline import time_left
from fabric_direct.drivers.hosts.ssh import CONNECT, SshHost
from fabric_direct.drivers.ssh.login import reach
from fabric_direct.errors import DriverError, TimedOut, Unreachable
from fabric_direct.site.config import Host, P4Switch, Site

# Where nothing lasts that an installation does not erase.
_MARK = '"$HOME"/.fabric-direct-before-install'
_STAMP = '"$HOME"/.fabric-direct-sliver'
_INSTALL = f"""
touch {_MARK}
entry=$(efibootmgr 2>/dev/null | sed -n 's/^Boot\\([0-9A-Fa-f]*\\).* ONIE.*/\\1/p' | head -n 1)
if [ -n "$entry" ]; then
  efibootmgr --bootnext "$entry"
else
  mkdir -p /mnt/onie-boot
  mountpoint -q /mnt/onie-boot || mount LABEL=ONIE-BOOT /mnt/onie-boot
  grub-reboot ONIE
  PATH=$PATH:/mnt/onie-boot/onie/tools/bin onie-boot-mode -o install
  umount /mnt/onie-boot
fi
sync
"""
_INSTALLER = """
if efibootmgr 2>/dev/null | grep -q ' ONIE'; then echo ONIE by EFI
elif command -v grub-reboot >/dev/null; then echo ONIE by GRUB
fi
"""
_REBOOT = "nohup sh -c 'sleep 1; reboot' >/dev/null 2>&1 &"
_MARKED = f"if [ -e {_MARK} ]; then echo yes; else echo no; fi"
# $1: user. The account is made if the image has none, and its password stays locked.
_USER = """
id "$1" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$1"
home=$(getent passwd "$1" | cut -d: -f6)
"""
_KEYS = (
    _USER
    + """
mkdir -p "$home/.ssh"
cat > "$home/.ssh/authorized_keys.new" <<'END-OF-KEYS'
{keys}
END-OF-KEYS
chmod 700 "$home/.ssh"
chmod 600 "$home/.ssh/authorized_keys.new"
chown -R "$1:" "$home/.ssh"
mv "$home/.ssh/authorized_keys.new" "$home/.ssh/authorized_keys"
usermod --expiredate '' "$1"
"""
)
_READ_KEYS = """
home=$(getent passwd "$1" | cut -d: -f6)
if [ -n "$home" ] && [ -e "$home/.ssh/authorized_keys" ]; then cat "$home/.ssh/authorized_keys"; fi
"""
_LETS_IN = (
    "sshd -T -C user=\"$1\",host=localhost,addr=127.0.0.1 | grep -qx 'pubkeyauthentication yes'"
)
_EVICT = f"""
rm -f {_STAMP}
home=$(getent passwd "$1" | cut -d: -f6)
if [ -n "$home" ]; then
  rm -f "$home/.ssh/authorized_keys"
  usermod --lock --expiredate 1 "$1"
  pkill -KILL -u "$1" || [ $? -eq 1 ]
fi
"""
_PROCESSES = 'pgrep -u "$1" || [ $? -eq 1 ]'
# $1: nameservers; $2: sources of SSH; $3: subnets of ICMP; $4: the management interface.
# An image may start freerouter; when the switch has its user, it is the user's.
_GUARD = f"""
family() {{ case "$1" in *:*) echo ipv6 ;; *) echo ipv4 ;; esac; }}
allow() {{
  rule="rule family=$(family "$1") source address=$1 $2 accept"
  firewall-cmd --permanent --zone=public --add-rich-rule="$rule"
}}
install() {{
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q update </dev/null || echo "apt-get update failed" >&2
  dpkg --configure -a </dev/null || echo "dpkg --configure -a failed" >&2
  apt-get -qy -o DPkg::Lock::Timeout=120 install "$1" </dev/null ||
    {{ echo "$1 could not be installed" >&2; exit 1; }}
}}
for each in $1; do
  grep -qx "nameserver $each" /etc/resolv.conf || echo "nameserver $each" >> /etc/resolv.conf
done
if [ ! -e {_STAMP} ] && command -v systemctl >/dev/null; then
  state=$(systemctl show --property=LoadState freerouter.service)
  if [ "$state" = LoadState=loaded ]; then systemctl disable --now freerouter.service; fi
fi
if [ -n "$2" ]; then
  command -v firewall-cmd >/dev/null || install firewalld
  systemctl enable --now firewalld
  firewall-cmd --permanent --zone=public --add-icmp-block-inversion
  firewall-cmd --permanent --zone=public --remove-service=ssh
  for each in $2; do
    allow "$each" "service name=ssh"
  done
  for each in $3; do
    allow "$each" "protocol value=icmp"
  done
  if [ -n "$4" ]; then firewall-cmd --permanent --zone=public --change-interface="$4"; fi
  firewall-cmd --reload
fi
"""


def host_identity(settings: P4Switch, limit: float) -> str:
    """Return the host key that a switch shows now, without a login.

    :raises Unreachable: if it does not answer.
    """
    parts = urlsplit(settings.ssh)
    try:
        connection = reach(
            parts.hostname or "", parts.port or 22, connect=CONNECT, first_line=CONNECT
        )
        with closing(paramiko.Transport(connection)) as transport:
            transport.start_client(timeout=limit)
            key = transport.get_remote_server_key()
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise Unreachable(
            "the switch does not answer", where=settings.ssh, why=str(error)
        ) from error
    return f"{key.get_name()} {key.get_base64()}"


class SshSwitch:
    """A switch by SSH, as the administrator whom site.yaml names."""

    def __init__(self, site: Site, name: str, host_key: str) -> None:
        """Connect to nothing yet.

        :param host_key: the only one that is trusted; empty for what known_hosts says.
        """
        self._site, self._name, self._settings = site, name, site.p4_switches[name]
        host = Host(
            ssh=self._settings.ssh,
            ssh_key=self._settings.ssh_key,
            host_key=host_key or None,
            python=self._settings.python,
        )
        self._alone = site.model_copy(update={"hosts": {name: host}})

    def user(self) -> str:
        """Return the id of the user by whom scripts run."""
        return self._run("id -u").strip()

    def installer(self) -> str:
        """Return by what the switch can be told to install itself; empty if it cannot."""
        return self._run(_INSTALLER).strip()

    def begin_install(self) -> None:
        """Have ONIE install the switch at its next start, and start it."""
        self._run(_INSTALL)
        with suppress(Unreachable, TimedOut):  # it may be gone before it answers
            self._run(_REBOOT)

    def is_marked(self) -> bool:
        """Return whether the disk is that from before the installation."""
        return self._run(_MARKED).strip() == "yes"

    def guard(self) -> None:
        """Set nameservers and firewall as site.yaml says; install firewalld where there is none."""
        of = self._settings
        lists = (of.nameservers, of.ssh_sources, of.icmp_subnets)
        words = (*(" ".join(map(str, each)) for each in lists), of.interface or "")
        self._run(_GUARD, *words, limit=self._site.limits.create)

    def let_in(self, sliver_id: str, keys: tuple[str, ...]) -> None:
        """Let in the user with these keys, and no others."""
        self._run(_KEYS.replace("{keys}", "\n".join(keys)), self._settings.user)
        self._run(f'echo "$1" > {_STAMP}', sliver_id)

    def sliver(self) -> str:
        """Return whose the switch says that it is; empty if it does not say."""
        return self._run(f"if [ -e {_STAMP} ]; then cat {_STAMP}; fi").strip()

    def keys(self) -> tuple[str, ...]:
        """Return the keys of the user."""
        return tuple(self._run(_READ_KEYS, self._settings.user).splitlines())

    def lets_in(self) -> bool:
        """Return whether the SSH server takes keys of the user."""
        with suppress(_Failed):
            self._run(_LETS_IN, self._settings.user)
            return True
        return False

    def evict(self) -> None:
        """Take the user's keys away, lock the account, and end its processes."""
        self._run(_EVICT, self._settings.user)

    def processes(self) -> tuple[str, ...]:
        """Return the ids of the user's processes."""
        return tuple(self._run(_PROCESSES, self._settings.user).split())

    def _run(self, script: str, *words: str, limit: float | None = None) -> str:
        """Run a script as root; words are its arguments, and no shell reads them as anything else."""
        limit = time_left(limit or self._site.limits.call)
        argv = (*self._settings.as_root, "sh", "-eu", "-s", "--", *words)
        with self._opened() as host:
            result = host.run(argv, script.encode(), timeout=limit)
        if result.code:
            why = result.stderr.decode(errors="replace").strip()[-500:]
            where = f"{self._name}, {self._settings.ssh}"
            raise _Failed("a script on the switch failed", where=where, why=why)
        return result.stdout.decode(errors="replace")

    @contextmanager
    def _opened(self) -> Iterator[SshHost]:
        host = SshHost(self._alone, self._name)
        try:
            yield host
        finally:
            host.close()


class _Failed(DriverError):
    """A script ended with an error."""
