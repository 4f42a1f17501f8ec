"""Read an inventory's file in YAML form: groups with ``hosts``, ``vars`` and ``children``."""

from fabric_direct.migration.inventory import AnsibleInventory, Group
from fabric_direct.migration.values import Fields


def read(document: Fields, into: AnsibleInventory) -> None:
    """Add the content of a document to an inventory.

    :raises Refused: if it has another form; the message names the line.
    """
    for name in document.values():
        _group(name, document.get(name), into)


def _group(name: str, fields: Fields, into: AnsibleInventory) -> None:
    group = into.group(name, fields.place())
    unknown = fields.values().keys() - {"hosts", "vars", "children"}
    if unknown:
        raise fields.get(min(unknown)).refusal("a group has hosts, vars and children only")
    for pattern in fields.get("hosts").values():
        _hosts(pattern, fields.get("hosts", pattern), group, into)
    group.variables |= fields.get("vars").values()
    for child in fields.get("children").values():
        group.children.append(child)
        _group(child, fields.get("children", child), into)


def _hosts(pattern: str, fields: Fields, group: Group, into: AnsibleInventory) -> None:
    try:
        into.add(group, pattern, fields.place(), fields.values())
    except ValueError as error:
        raise fields.refusal(str(error)) from None
