"""The scripts that a guest's shell runs for us: constants, whose values come as arguments or input.

They are POSIX shell, as in busybox and on a BSD. A process costs a small guest dear, so what only
looks uses what the shell has built in.
"""

from fabric_direct.drivers.guests.ifconfig import SHOW

# $1 is where sysfs is. In a BSD what ifconfig says; else a line for each interface: its name, whether it
# is a real one (of a device, and not one that the guest made on top of others), and those that it is on
# top of.
LINKS = f"""exec 2>/dev/null
{SHOW}for each in "$1"/class/net/*; do
  [ -e "$each" ] || continue
  kind=made below=
  [ ! -e "$each/device" ] || kind=real
  for lower in "$each"/lower_*; do
    [ ! -e "$lower" ] || below="$below ${{lower##*/lower_}}"
  done
  echo "${{each##*/}} $kind$below"
done"""

# $1 is where sysfs is, $2 the table of mounts. A line for each disk with its device number and serial
# number (virtio), then the mounts.
DISKS = """exec 2>/dev/null
for each in "$1"/block/*; do
  number= serial=
  read -r number <"$each/dev"
  read -r serial <"$each/serial"
  echo "disk ${each##*/} ${number:--} $serial"
done
while read -r line; do printf 'mount %s\\n' "$line"; done <"$2" """

# $1 is the interface. What configures it, the best first; nothing if only its commands are there.
MANAGERS = """PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
has() { command -v "$1" >/dev/null 2>&1; }
case $(uname -s) in FreeBSD) echo freebsd ;; OpenBSD) echo openbsd ;; esac
if has nmcli && state=$(nmcli -g GENERAL.STATE device show "$1" 2>/dev/null); then
  case $state in 10\\ * | '') ;; *) echo networkmanager ;; esac
fi
if has systemctl && systemctl -q is-active systemd-networkd; then
  for each in /etc/netplan/*.yaml /run/netplan/*.yaml /lib/netplan/*.yaml; do
    [ -e "$each" ] && has netplan && echo netplan && break
  done
  echo networkd
fi
if has ifup && grep -qs '^ *source.*/interfaces\\.d/' /etc/network/interfaces; then echo ifupdown; fi
exit 0"""

# All that netplan reads, as YAML documents; ``netplan get`` has to start Python, and older ones lack it.
NETPLAN = """for each in /lib/netplan/*.yaml /etc/netplan/*.yaml /run/netplan/*.yaml; do
  [ ! -e "$each" ] || { echo "---"; cat "$each"; echo; }
done"""

# $1 is the file.
READ = """[ ! -e "$1" ] || cat "$1" """
# $1 is the file, $2 its mode, $3 the bytes of its content: a connection that breaks off must not leave
# half a file.
WRITE = """umask 022
mkdir -p "${1%/*}" && umask 077 && cat >"$1.new" && [ "$(wc -c <"$1.new")" -eq "$3" ] &&
chmod "$2" "$1.new" && mv "$1.new" "$1" && sync"""

# $1 is a command. Each driver reports a missing command in its own way, so look for it first.
HAS = """PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
command -v "$1" >/dev/null 2>&1 && echo yes || echo no"""
# $1 is a disk, $2 the bytes of its beginning that have to be zero.
IS_BLANK = """[ "$(head -c "$2" "$1" | tr -d '\\000' | wc -c)" -eq 0 ]"""
# Without systemd there is nothing that has read /etc/fstab before.
REREAD_FSTAB = """[ ! -d /run/systemd/system ] || systemctl daemon-reload"""
