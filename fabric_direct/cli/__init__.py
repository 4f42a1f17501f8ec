"""``fabric-direct``: the library on the command line.

::

    options      the options of all commands; how documents, errors and logs are printed
    json_log     the log as JSON
    envelope     the document that programs get, for its schema
    completion   slivers, hosts, actions and files, completed in shells
    tables       tables: as text, CSV, JSON or YAML; --column
    inputs       arguments -> slivers and data
    sources      files, directories, stdin -> texts
    beforehand   slivers that the site cannot serve, before any is begun
    operations   plan create modify delete probe poa recover
    upkeep       reconcile watch
    placement    place
    zones        zone serve, list, reservation show, delete
    reservations what a running zone is asked to make: place --zone, zone reservation
    page         page: the site for browsers
    zone_client  --zone, --token-file, --ca-file; requests to a running zone
    sliver_list  list
    inspection   devices nodes uplink doctor schema
    topology     topology: pictures of hosts, slivers, the site
    history      history: who asked for what, and what came of it
    explain      explain: the classes of errors
    sweep        sweep
    state        state: the tables of a shared state; moving the state
    conductors   conductor; operations list, show, cancel
    adoption     adopt: slivers that others made
    migrate      fabric_am's configuration -> site.yaml
    running      waiting for outcomes, interrupts, exit codes
    lost_output  a stdout that cannot be written
    interrupts   Ctrl-C and SIGTERM
    progress     what shows operations; plain lines
    live         the same on a terminal: a line for each sliver
    under_way    what is under way, since when, and what it waits for
    show         tables and sentences for people
    manual       the manual page, and completion for shells, that a wheel has

The module of a command is imported when the command runs, and what is heavy (libvirt, pydantic's models)
inside the commands, so that help and shell completion are quick.
"""

import click

from fabric_direct.cli.options import RootCommand, shared_options

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
    "sweep": ("sweep", "Find and delete orphaned resources."),
    "place": ("placement", "Choose hosts for slivers; create them."),
    "zone": ("zones", "Serve the site as a zone; list zones; manage reservations."),
    "page": ("page", "Show the site to browsers."),
    "list": ("sliver_list", "List the existing slivers."),
    "devices": ("inspection", "List passthrough devices; release one."),
    "nodes": ("inspection", "List bare-metal nodes."),
    "topology": ("topology", "Draw a host, slivers, or the site."),
    "uplink": ("inspection", "Show or set the bridge mode of an uplink."),
    "doctor": ("inspection", "Check the requirements of the site."),
    "schema": ("inspection", "Print the JSON Schema of a document."),
    "history": ("history", "Show who asked for what, and what came of it."),
    "explain": ("explain", "Explain classes of errors."),
    "conductor": ("conductors", "Carry out what is asked for at the site."),
    "operations": ("conductors", "Show or cancel what conductors carry out."),
    "state": ("state", "Make the tables of a shared state; move the state."),
    "adopt": ("adoption", "Stamp slivers that others made, as ours."),
    "migrate": ("migrate", "Translate the configuration of fabric_am to site.yaml."),
}

_EPILOG = """\b
Exit codes:
  0    success
  1    failed, nothing is left behind; or probe, reconcile --dry-run: a sliver is absent or differs
  2    invalid input, or it names what is not there: nothing was changed
  3    partly done: some slivers are not, or something is left; the message says which, and what.
       Also where all is done, and stdout cannot be written: stderr says what was done
  4    plan --exit-code: there is something to do
  70   a bug of this program, please report it
  130  interrupted

\b
The site is read from --site, $FABRIC_DIRECT_SITE, ./site.yaml or
/etc/fabric-direct/site.yaml; without any, it is the local libvirt.

\b
Completion of commands, options, slivers, hosts and actions, for bash (also: zsh, fish):
  eval "$(_FABRIC_DIRECT_COMPLETE=bash_source fabric-direct)"
"""


@click.group(
    cls=RootCommand,
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
