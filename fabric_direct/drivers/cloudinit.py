"""Input of cloud-init at a guest's first boot: user data, and the NoCloud seed that carries it."""

import io
import json
from collections.abc import Iterable, Sequence
from email import encoders, message_from_string
from email.mime.base import MIMEBase
from email.mime.multipart import MIMEMultipart
from math import inf
from typing import Any, cast

import yaml

from fabric_direct.drivers.contract import HostKey, Port
from fabric_direct.model import NodeSliver
from fabric_direct.model.bare_metal import BareMetalSliver

BOOT_FINISHED = "/var/lib/cloud/instance/boot-finished"
"""Exists in a guest whose first boot cloud-init has finished."""

# FreeBSD listens for IPv6 routers, and starts its SSH server, only if it is told to; any other guest
# passes by. Both hold at later starts, too. What is set for an interface already stays.
_FREEBSD = """[ "$(uname)" = FreeBSD ] || exit 0
sysrc ipv6_activate_all_interfaces=YES rtsold_enable=YES sshd_enable=YES
for interface in $(ifconfig -l ether); do
  sysrc -qn "ifconfig_${interface}_ipv6" >/dev/null ||
  sysrc "ifconfig_${interface}_ipv6=inet6 accept_rtadv"
  ifconfig "$interface" inet6 accept_rtadv
done
service rtsold restart
service sshd onestatus || service sshd start
"""

# cloud-init shows the keys when the boot has ended, and nobody could log in by SSH while a boot script
# runs. It runs both in the order of their files' names: ``runcmd``, ``x-shellscript``.
_SHOW_HOST_KEYS = """{ echo "-----BEGIN SSH HOST KEY KEYS-----"
cat /etc/ssh/ssh_host_*_key.pub
echo "-----END SSH HOST KEY KEYS-----"; } 2>/dev/null >/dev/console || true
"""

# Before a script that names no interpreter. bash starts the same file with an argument, by which it
# passes this by: the script sees neither that argument nor a variable of ours. On a BSD, bash is a
# package, and the first boot does not look where packages are.
_BY_BASH_OR_SH = """#!/bin/sh
case $1 in
by-bash) ;;
*) set -- "$(PATH=$PATH:/usr/local/bin; command -v bash)"
   [ ! -x "$1" ] || exec "$1" "$0" by-bash ;;
esac
set --
"""

# All parts are base64, so that no line of theirs can be taken for the boundary.
_BOUNDARY = "==fabric-direct=="


def user_data(
    sliver: NodeSliver | BareMetalSliver,
    extra_keys: Iterable[str] = (),
    host_key: HostKey | None = None,
) -> str:
    """Return the sliver's user data, a MIME ``multipart/mixed`` document.

    Its parts are a ``text/cloud-config`` (host name, public keys, what FreeBSD needs
    beside, the host keys on the console) and, if the
    sliver has a boot script, a ``text/x-shellscript`` with the script byte for byte in UTF-8. A script
    whose first line names no interpreter (``#!``) is preceded by lines that have the guest's bash run
    it, or ``/bin/sh`` where there is none. The same input gives the same text.

    :param extra_keys: public keys beside the sliver's own that may log in, in OpenSSH's one-line form.
    :param host_key: the guest's SSH host key, instead of some that it makes for itself.
    """
    document = MIMEMultipart("mixed", boundary=_BOUNDARY)
    document.attach(_part("cloud-config", _cloud_config(sliver, extra_keys, host_key)))
    if sliver.boot_script is not None:
        document.attach(_part("x-shellscript", _runnable(sliver.boot_script)))
    return document.as_string()


def nocloud_seed(sliver: NodeSliver, document: str, ports: Sequence[Port]) -> bytes:
    """Return an ISO 9660 image labelled ``cidata``, with Joliet and Rock Ridge names.

    It holds ``meta-data`` (JSON: ``instance-id`` is the sliver's id, ``local-hostname``,
    ``public-keys``), ``user-data`` and ``network-config`` (JSON, version 2). Images made at different
    times differ in their dates.

    :param document: the user data, as :func:`user_data` returns it; the keys in it are let in, too.
    :param ports: the guest's NICs, told apart by MAC: DHCP, or the port's addresses where it has none.
    """
    return _iso(
        {
            "meta-data": json.dumps(_meta_data(sliver, document)),
            "user-data": document,
            "network-config": json.dumps(_network_config(ports)),
        }
    )


def _runnable(script: str) -> str:
    return script if script.startswith("#!") else _BY_BASH_OR_SH + script


def _part(subtype: str, text: str) -> MIMEBase:
    # The email package's own text parts rewrite line ends; a payload of bytes stays as it is.
    part = MIMEBase("text", subtype, charset="utf-8")
    part.set_payload(text.encode())
    encoders.encode_base64(part)
    part.add_header("Content-Disposition", "attachment", filename=subtype)
    return part


def _cloud_config(
    sliver: NodeSliver | BareMetalSliver, extra_keys: Iterable[str], host_key: HostKey | None
) -> str:
    config: dict[str, Any] = {
        "hostname": sliver.name,
        "manage_etc_hosts": "localhost",
        "ssh_authorized_keys": list(dict.fromkeys((*sliver.ssh_keys, *extra_keys))),
        "runcmd": [["sh", "-c", _FREEBSD], ["sh", "-c", _SHOW_HOST_KEYS]],
    }
    if host_key:
        pair = {"ed25519_private": host_key.private, "ed25519_public": host_key.public}
        config["ssh_keys"] = pair
    # Without line breaks: other readers than cloud-init expect a key on one line.
    return "#cloud-config\n" + yaml.safe_dump(config, sort_keys=False, width=inf)


def _meta_data(sliver: NodeSliver, document: str) -> dict[str, Any]:
    return {
        "instance-id": sliver.id,
        "local-hostname": sliver.name,
        "public-keys": list(dict.fromkeys((*sliver.ssh_keys, *_keys_in(document)))),
    }


def _keys_in(document: str) -> list[str]:
    for part in message_from_string(document).walk():
        if part.get_content_type() == "text/cloud-config":
            config = yaml.safe_load(cast(bytes, part.get_payload(decode=True)))
            return list(config.get("ssh_authorized_keys", []))
    return []


def _network_config(ports: Sequence[Port]) -> dict[str, Any]:
    return {"version": 2, "ethernets": {port.component: _ethernet(port) for port in ports}}


def _ethernet(port: Port) -> dict[str, Any]:
    ethernet: dict[str, Any] = {"match": {"macaddress": port.mac}}
    if port.dhcp:
        return ethernet | {"dhcp4": True, "dhcp6": port.ipv6 is not None}
    ethernet["addresses"] = [str(address) for address in (port.ipv4, port.ipv6) if address]
    default = (("0.0.0.0/0", port.gateway),) if port.gateway else ()
    if routes := [{"to": to, "via": via} for to, via in (*default, *port.routes)]:
        ethernet["routes"] = routes
    if port.mtu:
        ethernet["mtu"] = port.mtu
    if port.dns:
        ethernet["nameservers"] = {"addresses": list(port.dns)}
    return ethernet


def _iso(files: dict[str, str]) -> bytes:
    import pycdlib  # noqa: PLC0415 - slow to import; only libvirt's guests have a seed

    iso, image = pycdlib.PyCdlib(), io.BytesIO()
    iso.new(interchange_level=3, vol_ident="cidata", joliet=3, rock_ridge="1.09")
    for name, text in files.items():
        content = text.encode()
        plain = f"/{name.replace('-', '').upper()[:8]}.;1"
        source = io.BytesIO(content)
        iso.add_fp(source, len(content), plain, rr_name=name, joliet_path=f"/{name}")
    iso.write_fp(image)
    iso.close()
    return image.getvalue()
