"""Drivers of other packages, and what site.yaml says of them."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from fabric_direct.doctor import Verdict, drivers, examine
from fabric_direct.documents import load
from fabric_direct.errors import InvalidSite
from fabric_direct.handlers import registry
from fabric_direct.handlers.driver_settings import check_driver_settings
from fabric_direct.model import NodeSliver, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site import installed
from fabric_direct.site.config import Site, load_site

Install = Callable[..., None]
MODULE = dedent(
    """\
    from pydantic import BaseModel, ConfigDict, SecretStr
    from fabric_direct.drivers.fake import FakeGuest, FakeVolume

    class Login(BaseModel):
        model_config = ConfigDict(extra="forbid")
        user: str
        token: SecretStr | None = None

    class Settings(BaseModel):
        model_config = ConfigDict(extra="forbid")
        login: Login
        tries: int = 3

    class Volumes(FakeVolume):
        settings_model = Settings
        def __init__(self, site, host):
            super().__init__(site, host)
            self.settings = site.settings_of("acme", Settings)

    class Guests(FakeGuest):
        settings_model = Settings

    class Plain(FakeVolume):
        pass
    """
)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return what installs entry points of a package, as an installer would leave them."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "acme_drivers.py").write_text(MODULE)
    caches = (installed._installed, installed.names, installed._points, installed._loaded)

    def write(package: str, **points: dict[str, str]) -> None:
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        sections = (
            "\n".join([f"[fabric_direct.{kind}]", *(f"{n} = {v}" for n, v in named.items())])
            for kind, named in points.items()
        )
        (info / "entry_points.txt").write_text("\n".join(sections))
        for each in caches:
            each.cache_clear()

    yield write
    monkeypatch.undo()
    sys.modules.pop("acme_drivers", None)
    for each in caches:
        each.cache_clear()


@pytest.fixture
def acme(fake_site: Site, install: Install) -> Callable[..., Site]:
    """Return what makes a site whose volumes are made by the driver ``acme``, with these settings."""
    install("acme", volume={"acme": "acme_drivers:Volumes", "plain": "acme_drivers:Plain"})

    def site(driver: str = "acme", **settings: object) -> Site:
        named = fake_site.drivers | {"Storage": driver}
        return fake_site.model_copy(update={"drivers": named, "driver_settings": settings})

    return site


def refused(site: Site) -> InvalidSite:
    with pytest.raises(InvalidSite) as caught:
        check_driver_settings(site)
    return caught.value


class TestWhatADriverTakes:
    def test_it_gets_its_settings_as_its_model(self, acme: Callable[..., Site]) -> None:
        site = acme(acme={"login": {"user": "me"}})

        check_driver_settings(site)
        volume = registry.host_drivers(site, "localhost").volume

        assert volume.settings.login.user == "me"  # type: ignore[attr-defined]
        assert volume.settings.tries == 3  # type: ignore[attr-defined]

    def test_a_site_of_a_file_gives_it_the_same(
        self, acme: Callable[..., Site], tmp_path: Path
    ) -> None:
        acme()
        named = "drivers: {VM: fake, Storage: acme}"
        settings = "driver_settings: {acme: {login: {user: me}}}"
        (tmp_path / "site.yaml").write_text(f"site: x\n{named}\n{settings}")

        site = load(tmp_path / "site.yaml", Site, InvalidSite)

        check_driver_settings(site)
        assert site.driver_settings == {"acme": {"login": {"user": "me"}}}

    @pytest.mark.parametrize(
        ("settings", "field", "said"),
        [
            ({}, "driver_settings.acme.login", "is missing"),
            ({"login": {}}, "driver_settings.acme.login.user", "is missing"),
            (
                {"login": {"user": "me"}, "tries": "3"},
                "driver_settings.acme.tries",
                "must be a whole number, is '3'",
            ),
            (
                {"login": {"user": "me", "usr": "me"}},
                "driver_settings.acme.login.usr",
                "unknown field, did you mean 'user'",
            ),
            ({"login": "me"}, "driver_settings.acme.login", "must be a mapping of fields"),
        ],
    )
    def test_what_its_model_refuses_is_refused_by_its_path(
        self, acme: Callable[..., Site], settings: dict[str, object], field: str, said: str
    ) -> None:
        error = refused(acme(acme=settings))

        assert error.field == field
        assert f"{field}: {said}" in str(error)

    def test_all_that_is_wrong_is_said_at_once(self, acme: Callable[..., Site]) -> None:
        error = refused(acme(acme={"login": {}, "tries": "3"}))

        assert len(str(error).splitlines()) == 2

    def test_a_secret_is_not_repeated(self, acme: Callable[..., Site]) -> None:
        site = acme(acme={"login": {"user": "me", "token": ["sesame"]}})

        error = refused(site)

        assert "sesame" not in f"{error}{error.__cause__}{site!r}"

    def test_a_processor_refuses_a_site_before_anything_is_done(
        self, acme: Callable[..., Site]
    ) -> None:
        with pytest.raises(InvalidSite, match=r"driver_settings\.acme\.login: is missing"):
            HandlerProcessor(acme(acme={}))

    def test_required_settings_that_are_absent_refuse_each_operation(
        self, acme: Callable[..., Site], vm: Callable[..., NodeSliver]
    ) -> None:
        with HandlerProcessor(acme()) as processor:
            outcome = processor.create(vm()).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field == "driver_settings.acme.login"

    def test_the_doctor_finds_them(self, acme: Callable[..., Site]) -> None:
        for site in (acme(), acme(acme={})):
            found = drivers.check_drivers(site)

            assert found.verdict is Verdict.FAIL
            assert "driver_settings.acme.login: is missing" in found.found

    @pytest.mark.parametrize(
        ("settings", "found"),
        [
            (
                ["    login: {user: me}", "    trise: 3"],
                ["{path}:6: driver_settings.acme.trise: unknown field, did you mean 'tries'?"],
            ),
            (
                ["    login: {}", "    tries: '3'"],
                [
                    "{path}:5: driver_settings.acme.login.user: is missing",
                    "{path}:6: driver_settings.acme.tries: must be a whole number, is '3'",
                ],
            ),
        ],
    )
    def test_the_doctor_says_once_where_they_are_and_what_to_do(
        self,
        acme: Callable[..., Site],
        tmp_path: Path,
        settings: list[str],
        found: list[str],
    ) -> None:
        acme()
        path = tmp_path / "site.yaml"
        named = ["site: x", "drivers: {VM: fake, Storage: acme}", "driver_settings:", "  acme:"]
        path.write_text("\n".join([*named, *settings]))

        told = {one.subject: one for one in examine(path, lambda: load_site(path))}["drivers"]

        assert told.verdict is Verdict.FAIL
        assert told.found.splitlines() == [line.format(path=path) for line in found]
        assert told.remedy == "correct it in site.yaml"


class TestKinds:
    def test_drivers_of_one_name_share_their_settings(
        self, acme: Callable[..., Site], install: Install
    ) -> None:
        install("guests", guest={"acme": "acme_drivers:Guests"})
        settings = {"login": {"user": "me"}}

        check_driver_settings(acme(acme=settings).model_copy(update={"guest": "acme"}))

    def test_a_driver_of_an_unused_kind_is_not_asked(
        self, acme: Callable[..., Site], install: Install
    ) -> None:
        install("broken", network={"acme": "no_such_module:Networks"})

        check_driver_settings(acme(acme={"login": {"user": "me"}}))


class TestWhatNobodyTakes:
    def test_settings_of_a_driver_that_the_site_does_not_use_are_refused(
        self, acme: Callable[..., Site]
    ) -> None:
        error = refused(acme("plain", acme={"login": {"user": "me"}}))

        assert error.field == "driver_settings.acme"
        assert "the site does not use a driver 'acme': it uses fake, plain" in str(error)

    def test_settings_of_a_driver_that_takes_none_are_refused(
        self, acme: Callable[..., Site]
    ) -> None:
        error = refused(acme("plain", plain={}))

        assert error.field == "driver_settings.plain"
        assert "the driver 'plain' takes no settings" in str(error)

    def test_drivers_that_are_used_unnamed_take_no_settings_either(self) -> None:
        for name in ("libvirt", "netlink", "agent", "hostdev"):
            error = refused(Site(site="x", driver_settings={name: {}}))

            assert f"the driver '{name}' takes no settings" in str(error)

    def test_a_driver_that_is_not_installed_is_refused(self, fake_site: Site) -> None:
        named = fake_site.drivers | {"Storage": "magic"}
        values = {"drivers": named, "driver_settings": {"magic": {}}}

        error = refused(fake_site.model_copy(update=values))

        assert "no volume driver 'magic'" in str(error)
