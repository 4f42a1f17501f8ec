"""The page in a real browser: with scripts and without, on a phone, by keyboard, dark, printed."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fabric_direct.drivers.fake import substrate
from fabric_direct.model import NodeSliver
from fabric_direct.page.server import Listening, PageServer
from fabric_direct.page.sessions import token_path
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.page.browser import SECONDS, Browser, program

pytestmark = pytest.mark.skipif(
    program() is None, reason="needs a browser: labs/local/lab browser installs chromium"
)

MakeVm = Callable[..., NodeSliver]


@pytest.fixture
def site(fake_site: Site) -> Site:
    return fake_site.model_copy(update={"site": "SHOWN"})


@pytest.fixture
def server(site: Site) -> Iterator[PageServer]:
    server = PageServer(site, Listening("127.0.0.1:0"), every=1)
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server
    server.stop()
    thread.join(SECONDS)


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(tab: Browser, server: PageServer, site: Site) -> Iterator[Browser]:
    """A browser that has given the token."""
    tab.scripts(on=True)
    tab.size(1280, 900)
    tab.go(server.url)
    token = token_path(site.state_dir).read_text().strip()
    tab.run(f"document.getElementById('token').value = '{token}'")
    tab.follow("document.querySelector('form').requestSubmit()")
    assert tab.run("document.querySelector('h1').textContent") == "Site SHOWN"
    yield tab
    tab.go("about:blank")


def create(processor: HandlerProcessor, *slivers: NodeSliver) -> None:
    for created in [processor.create(sliver) for sliver in slivers]:
        assert created.result().ok


def test_it_follows_the_site(
    browser: Browser, site: Site, processor: HandlerProcessor, vm: MakeVm
) -> None:
    verdict = "document.getElementById('verdict').textContent"
    assert "Nothing needs attention" in browser.run(verdict)
    browser.run("window.same = true")

    create(processor, vm(id="vm-1"))
    browser.wait("document.getElementById('counts').textContent.includes('1 running')")
    servers = substrate(site, "localhost").servers
    servers["vm-1"] = replace(servers["vm-1"], ports=())
    browser.wait(f"{verdict}.includes('vm-1 differs')")

    assert browser.run("window.same"), "it was loaded again"
    assert browser.run("document.cookie") == ""


def test_it_stays_as_it_is_when_it_is_told_to(
    browser: Browser, processor: HandlerProcessor, vm: MakeVm
) -> None:
    browser.run("document.querySelector('#live button').click()")
    assert "stays as it is" in browser.run("document.getElementById('live').textContent")

    create(processor, vm(id="vm-1"))
    assert "vm-1" not in browser.run("document.getElementById('slivers').textContent")
    browser.run("document.querySelector('#live button').click()")

    browser.wait("document.getElementById('slivers').textContent.includes('vm-1')")


def test_it_can_be_used_without_scripts(
    browser: Browser, server: PageServer, processor: HandlerProcessor, vm: MakeVm
) -> None:
    create(processor, vm(id="vm-1"))
    browser.wait("document.getElementById('slivers').textContent.includes('vm-1')")
    browser.scripts(on=False)

    browser.go(f"{server.url}slivers/vm-1")

    assert browser.run("document.querySelector('h1').textContent") == "Sliver vm-1"
    assert browser.run("document.querySelector('noscript meta').content") == "10"
    browser.go(server.url + browser.run("document.querySelector('noscript a').search"))
    assert browser.run("document.querySelector('noscript')") is None


def test_it_fits_a_phone_and_is_dark_for_who_wants_that(
    browser: Browser, server: PageServer, processor: HandlerProcessor, vm: MakeVm
) -> None:
    create(processor, *(vm(id=f"a-long-name-of-a-sliver-{n}") for n in range(3)))
    ground = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(ground)
    browser.size(390, 844)
    for path in ("", "slivers", "devices", "history", "slivers/a-long-name-of-a-sliver-1"):
        browser.go(server.url + path)
        assert browser.run("document.scrollingElement.scrollWidth") <= 390, path

    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.ask("Emulation.setEmulatedMedia", features=[dark])

    assert browser.run(ground) != light
    browser.ask("Emulation.setEmulatedMedia", features=[])


def test_the_first_key_leads_to_what_matters(browser: Browser) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab")

    focused = "document.activeElement"
    assert browser.run(f"{focused}.textContent") == "Skip to the content"
    assert browser.run(f"{focused}.getBoundingClientRect().top") >= 0
    assert browser.run(f"getComputedStyle({focused}).outlineStyle") == "solid"


def test_it_can_be_printed(browser: Browser, tmp_path: Path) -> None:
    browser.ask("Emulation.setEmulatedMedia", media="print")
    hidden = "getComputedStyle(document.querySelector('nav')).display"

    assert browser.run(hidden) == "none"
    browser.ask("Emulation.setEmulatedMedia", media="")
