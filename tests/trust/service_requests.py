"""Each request to a controller of network services fails once, before or after it took effect."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fabric_direct.drivers.al2s.driver import Al2sService
from fabric_direct.drivers.contract import ServiceDriver
from fabric_direct.drivers.nso.driver import NsoService
from fabric_direct.model import Outcome
from fabric_direct.model.services import SERVICES, NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from labs.network.al2s_standin import Al2s
from labs.network.http_standin import StandIn
from labs.network.nso_devices import DeviceManager
from labs.network.nso_standin import Controller
from tests.unit import al2s_services, nso_services

nso, nso_site = nso_services.nso, nso_services.site
al2s, al2s_site = al2s_services.al2s, al2s_services.site


@dataclass
class Scene:
    """A controller with one service, before and after a modification."""

    site: Site
    api: StandIn
    driver: ServiceDriver
    made: NetworkService
    changed: NetworkService
    empty: Callable[[], Any]
    state: Callable[[], str]
    names: Callable[[], list[str]]


def _of_nso(api: Controller, site: Site) -> Scene:
    """Serve one type alone, so that less is listed."""

    def empty() -> None:
        api.services, api.devices = {}, DeviceManager()

    drivers = site.drivers | dict.fromkeys(SERVICES, "fake") | {"L2STS": "nso"}
    site, made = site.model_copy(update={"drivers": drivers}), nso_services.STS
    changed, driver = nso_services.CHANGES["L2STS"], NsoService(site, "")
    return Scene(site, api, driver, made, changed, empty, lambda: str(api.services), api.names)


def _of_al2s(api: Al2s, site: Site) -> Scene:
    def empty() -> None:
        for things in api.things.values():
            things.clear()

    api.states = ("PROVISIONED",)
    made, changed, driver = al2s_services.SERVICE, al2s_services.CHANGED, Al2sService(site, "")
    return Scene(site, api, driver, made, changed, empty, lambda: str(api.things), api.names)


@pytest.fixture(params=["nso", "al2s"])
def scene(request: pytest.FixtureRequest) -> Scene:
    """A site with either controller."""
    name: str = request.param
    make: Callable[..., Scene] = {"nso": _of_nso, "al2s": _of_al2s}[name]
    return make(request.getfixturevalue(name), request.getfixturevalue(f"{name}_site"))


@pytest.mark.parametrize("fault", ["close", "lose"])
@pytest.mark.parametrize("operation", ["create", "modify", "delete"])
def test_whichever_request_fails_done_is_true_and_what_is_left_is_named(
    scene: Scene, operation: str, fault: str
) -> None:
    """Also a read, and a dry run."""
    wanted = scene.changed if operation == "modify" else scene.made
    asked = wanted.ref() if operation == "delete" else wanted
    number = made = 0
    with HandlerProcessor(scene.site) as processor:
        while made >= number:  # the fault was met
            number += 1
            scene.empty()
            if operation != "create":
                scene.driver.apply(scene.made)
            was, before = scene.state(), len(scene.api.requests)
            scene.api.fault_at(number, fault)
            outcome: Outcome = getattr(processor, operation)(asked).result()
            made, scene.api.at = len(scene.api.requests) - before, None
            if outcome.ok and operation == "delete":
                assert scene.names() == []
            elif outcome.ok:
                assert scene.driver.differences(wanted) == ()
            elif scene.names() and scene.state() != was:
                assert outcome.left

    assert number > 5
