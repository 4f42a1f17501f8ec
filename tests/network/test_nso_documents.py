"""The documents for NSO of each type, given to yanglint: as the driver sends them, and broken."""

from copy import deepcopy
from typing import Any

import pytest

from fabric_direct.drivers.nso import driver
from fabric_direct.drivers.nso.documents import MODULES, Documents
from fabric_direct.model.services import NetworkService
from fabric_direct.site.services import NsoSettings
from labs.network import nso_standin
from labs.network.nso_devices import Json
from labs.network.nso_standin import MODULES as ALL_MODULES
from labs.network.nso_standin import ROOT
from tests.network import yanglint
from tests.unit.nso_services import CHANGES, SAMPLES

DOCUMENTS = Documents(
    NsoSettings.model_validate(
        {
            "url": "https://nso.example/restconf",
            "user": "am",
            "password_file": "/nowhere",
            "border_routers": ["core-1", "core-2"],
        }
    )
)


def sent(sliver: NetworkService) -> Json:
    """Return what the driver sends to make a service, with its identifiers."""
    wanted = DOCUMENTS.of(sliver)
    _, _, body = driver._creation((MODULES[sliver.type], wanted["name"]), wanted)
    return dict(body[ROOT])


def broken(module: str, kind: str, *path: Any, **values: Any) -> Any:
    """Return a case: what is sent for a sample, with values of one of its modules changed.

    :param path: to what has the values, from the instance.
    :param values: None is for a value that goes.
    """
    services = deepcopy(sent(SAMPLES[kind]))
    there = services[f"{module}:{module}"][0]
    for step in path:
        there = there[step]
    there |= {name.replace("_", "-"): value for name, value in values.items()}
    for name in [name for name, value in there.items() if value is None]:
        del there[name]
    return pytest.param(services, False, id=f"broken {module}")


PORT = {"type": "HundredGigE", "id": "0/0/0/5", "outervlan": 5}
BROKEN = (
    broken("l2bridge", "L2Bridge", "interface", 1, burst_size=2),  # without bandwidth
    broken("l2ptp", "L2PTP", "stp-a", "interface", outervlan=0),
    broken("l2sts", "L2STS", "site-a", device="uky-sw"),  # as that of site-z
    broken("l3rt", "FABNetv4", gateway_ipv6={"address": "fd00::1", "netmask": 64}),  # beside IPv4's
    broken("l3vpn", "L3VPN", "site", 0, direct=None),  # and no neighbor
    broken("port-mirror", "PortMirror", from_interface_vlan=[PORT]),  # beside from-interface
    broken("idipa", "L2STS", "group", service=None),
)
WHOLE = tuple(
    pytest.param(sent(sliver), True, id=f"{kind} {what}")
    for what, slivers in (("made", SAMPLES), ("changed", CHANGES))
    for kind, sliver in slivers.items()
)


@pytest.mark.parametrize(("services", "whole"), [*WHOLE, *BROKEN])
def test_both_yang_checks_take_or_refuse(services: Json, whole: bool) -> None:
    verdicts = nso_standin.refusal(services), yanglint.refusal(services)

    assert [not said for said in verdicts] == [whole, whole], verdicts


def test_every_type_and_module_is_given() -> None:
    assert SAMPLES.keys() == CHANGES.keys() == MODULES.keys()
    assert [case.id for case in BROKEN] == [f"broken {module}" for module in ALL_MODULES]
