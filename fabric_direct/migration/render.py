"""Render site.yaml and clouds.yaml as text. A YAML writer writes all values; comments are ours."""

import re
from collections.abc import Iterable
from textwrap import indent
from typing import Any

import yaml

_ORDER = (
    "drivers",
    "openstack",
    "p4_switches",
    "services",
    "guest_access",
    "actor",
    "hosts",
    "images",
)
_SITE = """\
# A site, translated from the configuration of fabric_am. All fields: docs/site-yaml.md of fabric-direct,
# or `fabric-direct schema site`.
"""
_DEVICES = """\
# The only devices that may ever be passed through; none until they are named here. What this worker has:
#   fabric-direct devices {name} --all
#devices:
#  - {{type: SharedNIC, uplink: ens6f1}}          # all VFs of a NIC
#  - {{type: GPU, model: A30, bdf: "0000:25:00.0"}}
"""
_ADVERTISED = """\
# The only devices that may ever be passed through: those of the resource model. What this worker has:
#   fabric-direct devices {name} --all
"""
_CLOUDS = """\
# The cloud of site.yaml, for openstacksdk, which looks for this file and for secure.yaml in the current
# directory, ~/.config/openstack and /etc/openstack. The password is in secure.yaml, and nowhere here:
#   clouds: {%s: {auth: {password: …}}}
# The inventory did not name the domains of user and project: Default is Keystone's usual one.
"""


def site(name: str, sections: dict[str, Any]) -> str:
    """Return the text of site.yaml."""
    parts = [_SITE + _dumped({"site": name})]
    parts += [_section(key, sections[key]) for key in _ORDER if sections.get(key)]
    return "".join(parts)


def _section(key: str, content: dict[str, Any]) -> str:
    if key == "hosts":
        return "hosts:\n" + "".join(_host(name, host) for name, host in content.items())
    return _dumped({key: content}, flow=None if key == "images" else False)


def _host(name: str, host: dict[str, Any]) -> str:
    # Without what would end a comment.
    plain = re.sub(r"[^\w.-]", "_", name)
    if listed := host.get("devices"):
        own = {key: value for key, value in host.items() if key != "devices"}
        devices = _ADVERTISED.format(name=plain) + _dumped({"devices": listed}, flow=None)
        return indent(_dumped({name: own}), "  ") + indent(devices, "    ")
    devices = indent(_DEVICES.format(name=plain), "    ", lambda _: True)
    return indent(_dumped({name: host}), "  ") + devices


def clouds(name: str, auth: dict[str, str]) -> str:
    """Return the text of clouds.yaml.

    :param auth: how to log in; the password is no part of it.
    """
    domains = {"user_domain_name": "Default", "project_domain_name": "Default"}
    return _CLOUDS % name + _dumped({"clouds": {name: {"auth": auth | domains}}})


def common_name(hosts: Iterable[str]) -> str:
    """Return the part before ``-`` that all names share: ``renc`` of ``renc-w1``, ``renc-hn``."""
    names = {host.split(".")[0].partition("-")[0] for host in hosts}
    found = next(iter(names)) if len(names) == 1 else ""
    return found if re.fullmatch(r"[A-Za-z0-9]{1,40}", found) else ""


class _Dumper(yaml.SafeDumper):
    """Writes text so that it is read as text."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # PyYAML does not quote 1e3, which others read as a number.
    style = '"' if re.fullmatch(r"[-+.0-9eE]+", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _dumped(content: dict[str, Any], *, flow: bool | None = False) -> str:
    """Return YAML in the order of the content.

    :param flow: None to write what is innermost on one line.
    """
    text: str = yaml.dump(
        content,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=10_000,
        default_flow_style=flow,
    )
    return text
