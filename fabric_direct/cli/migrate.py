"""The command that translates an AM's configuration of fabric_am to a site."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabric_direct.cli import show
from fabric_direct.cli.options import (
    PARTLY_DONE,
    Settings,
    pass_settings,
    print_json,
    shared_options,
)
from fabric_direct.errors import Refused

if TYPE_CHECKING:
    from rich.console import Console

    from fabric_direct.migration.draft import Notice
    from fabric_direct.migration.translate import Migration

_FILE = click.Path(path_type=Path)
_STANDARD = Path("/etc/openstack/secure.yaml")


@click.command("migrate")
@click.option("--vm", type=_FILE, help="vm_handler_config.yml")
@click.option("--vnic", type=_FILE, help="vnic_net_handler_config.yml")
@click.option("--net", type=_FILE, help="net_handler_config.yml")
@click.option("--al2s", type=_FILE, help="al2s_handler_config.yml")
@click.option("--switch", type=_FILE, help="switch_handler_config.yml")
@click.option("--inventory", type=_FILE, help="The Ansible inventory: a file or a directory.")
@click.option("--actor-config", type=_FILE, help="The AM actor's own config.yml.")
@click.option("--arm", type=_FILE, help="FABRIC's resource model of the site (ARM): GraphML.")
@click.option(
    "--output",
    default="-",
    show_default=True,
    metavar="DIR",
    help="Where to write site.yaml and clouds.yaml; - prints them.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@shared_options
@pass_settings
def migrate_(
    settings: Settings,
    vm: Path | None,
    vnic: Path | None,
    net: Path | None,
    al2s: Path | None,
    switch: Path | None,
    inventory: Path | None,
    actor_config: Path | None,
    arm: Path | None,
    output: str,
    *,
    force: bool,
) -> None:
    """Translate fabric_am's configuration to site.yaml and clouds.yaml.

    The old files are only read. What cannot be translated is reported with file and line; the exit code
    is 3 then. No password is printed or written; the output says where to put it.
    """
    from fabric_direct.migration.draft import NoticeKind  # noqa: PLC0415 - see the package
    from fabric_direct.migration.translate import Sources, migrate  # noqa: PLC0415

    sources = Sources(vm, vnic, net, al2s, switch, inventory, actor_config, arm)
    if sources == Sources():
        raise click.UsageError(
            "name at least one of --vm, --vnic, --net, --al2s, --switch, --inventory, --actor-config,"
            " --arm"
        )
    folder = None if output == "-" else Path(output)
    done = migrate(sources, folder / "secure.yaml" if folder else _STANDARD)
    written = _write(_documents(done), folder, force=force) if folder else []
    _tell(done, written, settings)
    if any(finding.kind is NoticeKind.NOT_TRANSLATED for finding in done.findings):
        click.get_current_context().exit(PARTLY_DONE)


def _documents(done: "Migration") -> dict[str, str]:
    return {"site.yaml": done.site} | ({"clouds.yaml": done.clouds} if done.clouds else {})


def _write(documents: dict[str, str], folder: Path, *, force: bool) -> list[Path]:
    """Write all files, or none if one exists and ``force`` is not set.

    :raises Refused: if one exists already, or cannot be written.
    """
    paths = [folder / name for name in documents]
    there = [str(path) for path in paths if path.exists() and not force]
    if there:
        raise Refused(f"{', '.join(there)}: there already", remedy="--force overwrites")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, documents.values(), strict=True):
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Refused(f"cannot write {error.filename}", why=error.strerror or "") from error
    return paths


def _tell(done: "Migration", written: list[Path], settings: Settings) -> None:
    if settings.as_json:
        print_json(_as_data(done, written))
        return
    if written:
        for path in written:
            show.say(show.console(), f"wrote {path}")
    else:
        click.echo("---\n".join(f"# {name}\n{text}" for name, text in _documents(done).items()))
    _tell_findings(done.findings, show.console(stderr=not written))


def _tell_findings(findings: "tuple[Notice, ...]", to: "Console") -> None:
    kind = None
    for finding in findings:
        if finding.kind is not kind:
            kind = finding.kind
            show.say(to, f"\n{kind.value}", "bold")
        where = f"{finding.place}  " if finding.place else ""
        show.say(to, f"  {where}{finding.what}: {finding.why}")
        if finding.remedy:
            show.say(to, f"      -> {finding.remedy}")


def _as_data(done: "Migration", written: list[Path]) -> dict[str, Any]:
    findings = [
        {
            "kind": finding.kind.value,
            "file": finding.place.file if finding.place else None,
            "line": finding.place.line if finding.place else None,
            "what": finding.what,
            "why": finding.why,
            "remedy": finding.remedy,
        }
        for finding in done.findings
    ]
    paths = [str(path) for path in written]
    return {"written": paths, "documents": _documents(done), "findings": findings}


COMMANDS: tuple[click.Command, ...] = (migrate_,)
