"""Fixtures for the fake hosts w1 and w2 of a site that each file of tests describes; or their cloud."""

from collections.abc import Iterator
from typing import Any

import pytest

from fabric_direct.drivers.fake import FakeCompute, Substrate, substrate
from fabric_direct.handlers import registry
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site


@pytest.fixture
def w1(site: Site) -> Substrate:
    return substrate(site, "w1")


@pytest.fixture
def w2(site: Site) -> Substrate:
    return substrate(site, "w2")


@pytest.fixture
def processor(site: Site, w1: Substrate, w2: Substrate) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor
        w1.mend()
        w2.mend()


class FakeCloud(FakeCompute):
    """Servers of all hosts in one place, as a cloud has them."""

    cloud = True
    chosen = "w1"
    """The host that it chooses if none is named."""

    def __init__(self, site: Site, host: str) -> None:
        super().__init__(site, host or self.chosen)
        self.substrate = substrate(site, "cloud")


def served_by(cloud: type[FakeCloud], site: Site, monkeypatch: pytest.MonkeyPatch) -> Substrate:
    """Let a cloud have the servers of a site; return what it works on."""
    usual = registry.driver

    def driver(kind: str, name: str, field: str = "drivers") -> Any:
        return cloud if kind == "compute" else usual(kind, name, field)

    monkeypatch.setattr(registry, "driver", driver)
    return substrate(site, "cloud")
