"""The command that places several slivers at once."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabric_direct.cli import completion, inputs, running, show
from fabric_direct.cli.options import (
    FAILED,
    PARTLY_DONE,
    Settings,
    log_to_stderr,
    operation_options,
    pass_settings,
    print_json,
    shared_options,
)
from fabric_direct.cli.zone_client import zone_options
from fabric_direct.errors import Refused
from fabric_direct.placement.refusals import refusals
from fabric_direct.state import files

if TYPE_CHECKING:
    from rich.console import Console

    from fabric_direct.model.bare_metal import MachineSliver
    from fabric_direct.placement.batch_request import BatchRequest
    from fabric_direct.placement.plan import Assignment, BuildPlan, Explanation, Unplaced
    from fabric_direct.site.config import ChildZone

_FILE = click.Path(path_type=Path, dir_okay=False)
_MOST_NEXT = 3
_REQUEST = """\b
A REQUEST is the file of one sliver, or of several:
  slivers:
    - count: 4
      apart: true        # no two on one host; or together: true
      sliver: {id: web, name: web, host: auto, ...}
`fabric-direct schema request` prints its schema. It may also be a directory of such files,
or - for stdin, and a file may have several documents: all are placed together.
"""


@click.command(epilog=_REQUEST)
@click.argument("request", metavar="REQUEST", shell_complete=completion.files)
@click.option("--boot", is_flag=True, help="Create the slivers.")
@click.option(
    "--explain",
    is_flag=True,
    help="Show for each host the filter that refuses it, or its costs; for each node why not.",
)
@click.option("--partial", is_flag=True, help="Place as many slivers as fit.")
@click.option("--save", type=_FILE, help="Write the plan to a file.")
@click.option(
    "--plan",
    "stored",
    type=_FILE,
    help="Create the slivers according to a saved plan, if it is still valid.",
)
@zone_options()
@operation_options
@shared_options
@pass_settings
def place(
    settings: Settings,
    request: str,
    *,
    boot: bool,
    explain: bool,
    partial: bool,
    save: Path | None,
    stored: Path | None,
    at: "ChildZone | None",
) -> None:
    """Choose hosts for all slivers of a REQUEST at once, and show the plan and its cost.

    Bare-metal slivers get nodes. Nothing is created without --boot. All-or-nothing, unless --partial.

    With --zone, show what a running zone and the zones below it offer; zones do not name hosts.
    """
    log_to_stderr(settings)
    wanted = inputs.wanted(request)
    if at:
        from fabric_direct.cli import reservations  # noqa: PLC0415 - see the package

        _refuse_with_zone(explain, save, stored)
        reservations.place(settings, wanted, at, boot=boot, partial=partial)
    said = _explained(settings, wanted) if explain else {}
    if not settings.as_json:
        _show_explained(said)
    plan = _load(stored) if stored else _plan(settings, wanted, partial=partial)
    if save:
        _save(plan, save)
    if not settings.as_json:
        _show(plan, wanted)
    if boot or stored:
        _boot(settings, plan, wanted.instances(), said)
    if settings.as_json:
        print_json(_document(plan, said))
    click.get_current_context().exit(_code(plan))


def _refuse_with_zone(*of_hosts: object) -> None:
    if any(of_hosts):
        raise click.UsageError("--explain, --save and --plan name hosts; zones do not.")


def _plan(settings: Settings, wanted: "BatchRequest", *, partial: bool) -> "BuildPlan":
    """Return the build plan of the slivers on the site's own hosts."""
    with running.site_processor(settings) as processor:
        return processor.place(wanted.instances(), partial=partial)


def _explained(settings: Settings, wanted: "BatchRequest") -> "dict[str, Explanation]":
    """Return the explanation for each group of slivers, by the id of its sliver."""
    with running.site_processor(settings) as processor:
        return {several.sliver.id: processor.explain(several.sliver) for several in wanted.slivers}


def _load(path: Path) -> "BuildPlan":
    from fabric_direct.documents import load  # noqa: PLC0415 - see the package
    from fabric_direct.placement.plan import BuildPlan  # noqa: PLC0415

    return load(path, BuildPlan, Refused)


def _save(plan: "BuildPlan", path: Path) -> None:
    """Write a plan to a file of mode 0600, as other plans are saved."""
    try:
        files.replace(path, plan.model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise Refused(f"cannot write {path}", why=error.strerror or str(error)) from error


def _boot(
    settings: Settings,
    plan: "BuildPlan",
    slivers: "tuple[MachineSliver, ...]",
    said: "dict[str, Explanation]",
) -> None:
    """Create what the plan assigns, print the outcomes, and exit with the matching code."""
    answers = running.run(settings, lambda having: having.build(plan, slivers), show.done)
    if settings.as_json:
        posted = {"operations": answers.posted} if answers.detached else {}
        print_json(_document(plan, said) | posted, outcomes=answers.outcomes)
    else:
        running.tell_people(answers, show.done)
    click.get_current_context().exit(running.exit_code(answers) or _code(plan))


def _code(plan: "BuildPlan") -> int:
    if not plan.unplaced:
        return 0
    return PARTLY_DONE if plan.assignments else FAILED


def _document(plan: "BuildPlan", said: "dict[str, Explanation]") -> dict[str, Any]:
    explained = {kind: told.model_dump(mode="json") for kind, told in said.items()}
    return {"plan": plan.model_dump(mode="json")} | ({"explained": explained} if said else {})


def _show_explained(said: "dict[str, Explanation]") -> None:
    out = show.console()
    for kind, told in said.items():
        show.say(out, f"{kind}:", "bold")
        if told.nodes:
            _show_nodes(told, out)
        else:
            _show_hosts(told, out)
        show.say(out, "")


def _show(plan: "BuildPlan", wanted: "BatchRequest") -> None:
    out, err = show.console(), show.console(stderr=True)
    on_hosts = [each for each in plan.assignments if each.chosen.node is None]
    on_nodes = [each for each in plan.assignments if each.chosen.node is not None]
    if on_hosts:
        show.table(out, ["INSTANCE", "HOST", "COST", "DEVICES", "NEXT"], map(_row, on_hosts))
    if on_nodes:
        show.table(out, ["INSTANCE", "NODE", "COST", "NEXT"], map(_row_of_node, on_nodes))
    by_id = {each.id: each for each in wanted.instances()}
    for unplaced in plan.unplaced:
        show.say(err, _why_unplaced(unplaced, by_id.get(unplaced.request)), "red")
    for warning in plan.warnings:
        show.say(err, f"warning: {warning}", "yellow")
    placed, every = len(plan.assignments), len(by_id)
    show.say(out, f"{placed} of {every} are placed, at a total cost of {plan.cost}.")


def _why_unplaced(unplaced: "Unplaced", sliver: "MachineSliver | None") -> str:
    from fabric_direct.model import NodeSliver  # noqa: PLC0415 - see the package

    if unplaced.why:
        return f"{unplaced.request}: no node is free: {unplaced.why}"
    types = [each.type for each in sliver.devices()] if isinstance(sliver, NodeSliver) else []
    counts = "; ".join(refusals(unplaced.refused, types))
    return f"{unplaced.request}: no host can take it: {counts or 'there is none'}"


def _row(assignment: "Assignment") -> list[str]:
    chosen, others = assignment.chosen, assignment.next[:_MOST_NEXT]
    devices = (f"{name} {' '.join(map(str, at))}" for name, at in chosen.devices.items())
    return [
        *(assignment.request, chosen.place, str(chosen.cost)),
        *(", ".join(devices), ", ".join(others)),
    ]


def _row_of_node(assignment: "Assignment") -> list[str]:
    chosen, others = assignment.chosen, assignment.next[:_MOST_NEXT]
    return [assignment.request, chosen.place, str(chosen.cost), ", ".join(others)]


def _show_nodes(told: "Explanation", out: "Console") -> None:
    """Print each bare-metal node with the field by which it is refused, and why; or its cost."""
    rows = (
        [
            *(each.node, each.refused_by or "", each.why),
            "" if each.cost is None else str(each.cost),
        ]
        for each in told.nodes
    )
    show.table(out, ["NODE", "REFUSED BY", "WHY", "COST"], rows)


def _show_hosts(told: "Explanation", out: "Console") -> None:
    """Print each host with the filter that refuses it, or its costs, each before its weight."""
    weights = told.weights
    headers = ["HOST", "REFUSED BY", "COST", *(f"{name} x{n}" for name, n in weights.items())]
    show.table(
        out,
        headers,
        (
            [
                *(verdict.host, verdict.refused_by or ""),
                "" if verdict.cost is None else str(verdict.cost),
                *(str(verdict.costs.get(name, "")) for name in weights),
            ]
            for verdict in told.hosts
        ),
    )


COMMANDS: tuple[click.Command, ...] = (place,)
