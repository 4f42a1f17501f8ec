"""``fabric-direct``: the library on the command line.

::

    options      the options of all commands: --site, --json, --verbose; how errors are printed
    inputs       arguments -> slivers and data
    operations   plan create modify delete probe poa recover
    upkeep       reconcile watch
    placement    place
    zones        zone serve, list, reservation show, delete
    reservations what a running zone is asked to make: place --zone, zone reservation
    zone_client  --zone, --token-file, --ca-file; requests to a running zone
    inspection   list devices doctor schema
    sweep        sweep
    adoption     adopt: slivers that others made
    migrate      fabric_am's configuration -> site.yaml
    running      waiting for outcomes, interrupts, exit codes
    progress     a live display on a terminal, plain lines elsewhere
    show         tables and sentences

The module of a command is imported when the command runs, and what is heavy (libvirt, pydantic's models)
inside the commands, so that help and shell completion are quick.
"""

import click

from fabric_direct.cli.options import Root, shared_options

_COMMANDS = {
    "plan": ("operations", "Show what create or modify would do."),
    "create": ("operations", "Create slivers from files."),
    "modify": ("operations", "Change a sliver to match its file."),
    "delete": ("operations", "Delete slivers with everything that belongs to them."),
    "probe": ("operations", "Show a sliver and compare it with its file."),
    "poa": ("operations", "Carry out an operational action."),
    "reconcile": ("upkeep", "Put back what others took from slivers."),
    "watch": ("upkeep", "Repair slivers when others change them."),
    "recover": ("operations", "Finish or undo interrupted operations."),
    "sweep": ("sweep", "Find, and delete, what nobody expects."),
    "place": ("placement", "Choose hosts for slivers; create them."),
    "zone": ("zones", "Serve the site as a zone; list zones; manage reservations."),
    "list": ("inspection", "List the existing slivers."),
    "devices": ("inspection", "List passthrough devices; release one."),
    "uplink": ("inspection", "Show or set the bridge mode of an uplink."),
    "doctor": ("inspection", "Check the requirements of the site."),
    "schema": ("inspection", "Print the JSON Schema of a document."),
    "adopt": ("adoption", "Stamp slivers that others made, as ours."),
    "migrate": ("migrate", "Translate the configuration of fabric_am to site.yaml."),
}

_EPILOG = """\b
Exit codes:
  0    success
  1    failed, nothing is left behind; or probe, reconcile --dry-run: a sliver is absent or differs
  2    invalid input, nothing was changed
  3    partly done, the message says what is left
  130  interrupted

\b
The site is read from --site, $FABRIC_DIRECT_SITE, ./site.yaml or
/etc/fabric-direct/site.yaml; without any, it is the local libvirt.

\b
Completion of commands and options, for bash (also: zsh, fish):
  eval "$(_FABRIC_DIRECT_COMPLETE=bash_source fabric-direct)"
"""


@click.group(
    cls=Root,
    lazy=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
@shared_options
@click.version_option(package_name="fabric-direct", prog_name="fabric-direct")
def main() -> None:
    """Provision slivers: virtual machines with NICs, volumes and devices.

    A sliver is described by a YAML or JSON file; `fabric-direct schema sliver` prints its schema. Try
    `plan` first: it changes nothing. All commands are idempotent.
    """
