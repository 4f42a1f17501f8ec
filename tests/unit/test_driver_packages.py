"""Drivers of other packages that are broken: what each command says, on real distributions."""

from textwrap import dedent

import pytest

from tests.unit.driver_packages import Done, Packages, packages

__all__ = ["packages"]

SITE = """\
site: TEST
state_dir: state
drivers:
  VM: fake
  Storage: {driver}
guest: fake
images: {{tiny: {{}}}}
networks:
  red: {{strategy: flat_dhcp, subnet: 10.20.1.0/24}}
"""
VM = """\
id: vm-1
name: node
image: tiny
capacities: {core: 1, ram: 1, disk: 1}
components:
  - {id: data, type: Storage, size: 1}
"""
WHOLE = "from fabric_direct.drivers.fake import FakeVolume as Volumes\n"
BROKEN = {
    "a name that the module does not have": (
        WHOLE,
        "acme:Volumse",
        "AttributeError: module 'acme' has no attribute 'Volumse'",
    ),
    "a module that is not there": (
        WHOLE,
        "acme_drivers:Volumes",
        "ModuleNotFoundError: No module named 'acme_drivers'",
    ),
    "a syntax error": ("def (", "acme:Volumes", "SyntaxError: "),
    "an import that raises": (
        "raise RuntimeError('no licence')",
        "acme:Volumes",
        "RuntimeError: no licence",
    ),
    "an import that raises an error of this library": (
        "from fabric_direct.errors import Denied\nraise Denied('no licence')",
        "acme:Volumes",
        "Denied: no licence",
    ),
    "an import that exits": ("import sys; sys.exit(0)", "acme:Volumes", "SystemExit: 0"),
    "something that cannot be called": ("Volumes = 5", "acme:Volumes", "TypeError: "),
    "a constructor that raises": (
        "class Volumes:\n    def __init__(self, site, host):\n        site.nothing",
        "acme:Volumes",
        "AttributeError: 'Site' object has no attribute 'nothing'",
    ),
    "a constructor that exits": (
        "class Volumes:\n    def __init__(self, site, host):\n        raise SystemExit",
        "acme:Volumes",
        "SystemExit",
    ),
}


def written(packages: Packages, source: str, value: str, driver: str = "acme") -> None:
    packages.module("acme", source)
    packages.install("acme-storage", volume={"acme": value})
    packages.write("site.yaml", SITE.format(driver=driver))
    packages.write("vm.yaml", VM)
    packages.write("expected.yaml", "{count: 1, slivers: [vm-1]}")


def refused(done: Done, *words: str) -> None:
    """Assert that a command refuses the site with a sentence that has these words."""
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert "Traceback" not in said
    for each in words:
        assert each in said


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_package_is_named_with_its_entry_point_and_error(
    packages: Packages, what: str
) -> None:
    source, value, error = BROKEN[what]
    written(packages, source, value)

    done = packages.run("list")

    refused(done, "site.yaml:5: drivers.Storage: ", "acme-storage 1.0", f"acme = {value}", error)


@pytest.mark.parametrize(
    "argv",
    [
        ["plan", "vm.yaml"],
        ["create", "vm.yaml"],
        ["modify", "vm.yaml"],
        ["probe", "vm.yaml"],
        ["delete", "vm.yaml"],
        ["poa", "vm-1", "reboot"],
        ["reconcile", "vm-1"],
        ["sweep", "--expected", "expected.yaml"],
        ["list"],
        ["devices", "localhost"],
        ["uplink", "localhost", "ens1"],
        ["topology"],
        ["place", "vm.yaml"],
    ],
    ids=lambda argv: argv[0],
)
def test_each_command_that_needs_it_says_so(packages: Packages, argv: list[str]) -> None:
    written(packages, "import sys; sys.exit(0)", "acme:Volumes")

    refused(packages.run(*argv), "acme-storage 1.0", "acme = acme:Volumes", "SystemExit: 0")


@pytest.mark.parametrize("what", BROKEN)
def test_the_doctor_says_so_and_goes_on(packages: Packages, what: str) -> None:
    source, value, error = BROKEN[what]
    written(packages, source, value)

    done = packages.run("doctor")

    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    for each in ("acme-storage 1.0", f"acme = {value}", error, "journal"):
        assert each in done.stdout


def test_a_site_that_does_not_use_it_works(packages: Packages) -> None:
    written(packages, "import sys; sys.exit(7)", "acme:Volumes", driver="fake")
    packages.install("acme-handlers", handlers={"Toaster": "acme:Toaster"})

    for argv in (["create", "vm.yaml"], ["list"], ["doctor"], ["schema", "sliver"]):
        done = packages.run(*argv)
        assert (done.returncode, done.stderr) == (0, ""), argv


def test_a_broken_handler_is_told_when_a_sliver_needs_it(packages: Packages) -> None:
    written(packages, "import sys; sys.exit(7)", "acme:Volumes", driver="fake")
    packages.install("acme-handlers", handlers={"Toaster": "acme:Toaster"})
    packages.write("toaster.yaml", "{id: t, type: Toaster}")

    done = packages.run("create", "toaster.yaml")

    refused(done, "acme-handlers 1.0", "Toaster = acme:Toaster", "SystemExit: 7")


class TestTwoPackagesWithOneName:
    @pytest.mark.parametrize("value", ["acme:Volumes", "other:Volumes"])
    def test_are_refused_and_both_named(self, packages: Packages, value: str) -> None:
        written(packages, WHOLE, "acme:Volumes")
        packages.install("other-storage", volume={"acme": value})

        for argv in (["list"], ["create", "vm.yaml"]):
            refused(packages.run(*argv), "acme-storage 1.0", "other-storage 1.0", "uninstall")

    def test_do_not_concern_a_site_that_does_not_use_it(self, packages: Packages) -> None:
        written(packages, WHOLE, "acme:Volumes", driver="fake")
        packages.install("other-storage", volume={"acme": "acme:Volumes"})

        assert packages.run("create", "vm.yaml").returncode == 0

    def test_a_package_that_is_in_two_folders_is_one(self, packages: Packages) -> None:
        written(packages, WHOLE, "acme:Volumes")
        packages.add_folder("earlier")
        packages.install("acme-storage", volume={"acme": "acme:Volumes"})
        packages.module("acme", WHOLE)

        assert packages.run("create", "vm.yaml").returncode == 0


INCOMPLETE = dedent(
    """\
    from fabric_direct.drivers.fake import FakeVolume

    class Volumes:
        def __init__(self, site, host):
            self._fake = FakeVolume(site, host)
            for name in ("find", "volumes", "all_volumes", "check", "existing", "create", "delete"):
                setattr(self, name, getattr(self._fake, name))
    """
)


class TestADriverThatLacksMethods:
    def test_is_refused_with_those_that_are_missing(self, packages: Packages) -> None:
        written(packages, INCOMPLETE, "acme:Volumes")

        for argv in (["list"], ["create", "vm.yaml"]):
            done = packages.run(*argv)
            refused(done, "acme-storage 1.0", "acme = acme:Volumes", "leftovers, stamped")

    def test_is_named_by_the_doctor_with_all_others(self, packages: Packages) -> None:
        written(packages, INCOMPLETE, "acme:Volumes")
        packages.install("acme-nets", network={"acme": "nets:Networks"})
        packages.module("nets", "class Networks:\n    def __init__(self, site, host): ...")
        packages.write("site.yaml", SITE.format(driver="acme").replace("VM:", "vNIC: acme\n  VM:"))

        done = packages.run("doctor")

        assert done.returncode == 1
        for each in ("acme-storage 1.0", "leftovers, stamped", "acme-nets 1.0", "create_port"):
            assert each in done.stdout

    def test_one_that_hands_its_methods_on_is_whole(self, packages: Packages) -> None:
        source = dedent(
            """\
            from fabric_direct.drivers.fake import FakeVolume

            class Volumes:
                def __init__(self, site, host):
                    self._fake = FakeVolume(site, host)
                def __getattr__(self, name):
                    return getattr(self._fake, name)
            """
        )
        written(packages, source, "acme:Volumes")

        assert packages.run("create", "vm.yaml").returncode == 0
