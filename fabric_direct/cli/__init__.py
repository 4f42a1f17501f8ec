"""``fabric-direct``: the library on the command line.

::

    options      what all commands have: --site, --json, --verbose; how errors are told
    inputs       files and ids on the command line -> slivers
    operations   plan create modify delete probe poa recover
    placement    place
    zones        zone serve, zone list
    reservations zone reservation show, delete; place --zone
    zone_client  --zone, --token-file, --ca-file; one question to a running zone
    inspection   list devices doctor schema
    migrate      fabric_am's configuration -> site.yaml
    running      waits for outcomes, interrupts, exit codes
    progress     a live display on a terminal, plain lines elsewhere
    show         tables and sentences

The module of a command is imported when the command runs, and what is heavy (libvirt, pydantic's models)
inside the commands, so that help and shell completion are quick.
"""

import click

from fabric_direct.cli.options import Root, shared_options

_COMMANDS = {
    "plan": ("operations", "Say what create or modify would do."),
    "create": ("operations", "Make the slivers that files describe."),
    "modify": ("operations", "Change a sliver into what its file says."),
    "delete": ("operations", "Remove slivers and all that is theirs."),
    "probe": ("operations", "Look at a sliver and compare it."),
    "poa": ("operations", "Carry out an operational action."),
    "recover": ("operations", "Finish or undo what was interrupted."),
    "place": ("placement", "Say which hosts slivers go to; make them."),
    "zone": ("zones", "Serve the site as a zone; list zones; manage reservations."),
    "list": ("inspection", "List the slivers that are there."),
    "devices": ("inspection", "List devices for passing through; set one free."),
    "uplink": ("inspection", "Show or set the bridge mode of an uplink."),
    "doctor": ("inspection", "Check what is needed; how to mend it."),
    "schema": ("inspection", "Print the JSON Schema of a file."),
    "migrate": ("migrate", "Turn fabric_am's configuration into site.yaml."),
}

_EPILOG = """\b
Exit codes:
  0    done
  1    failed, and nothing of it is left; or probe: the sliver is not as wanted
  2    bad input: nothing was touched
  3    partly done: the message says what is left
  130  interrupted

\b
The site is read from --site, else $FABRIC_DIRECT_SITE, ./site.yaml,
/etc/fabric-direct/site.yaml; else it is this machine with its libvirt.

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
    """Provision slivers: virtual machines with their NICs, volumes and devices.

    A sliver is described by a YAML or JSON file; `fabric-direct schema sliver` says what may be in it.
    Try `plan` first: it changes nothing. Doing a thing twice is the same as doing it once.
    """
