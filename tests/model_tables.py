"""The fields of models, as tables of docs/resources: each below ``<!-- fields: VNic -->``.

``<!-- fields: L3VPN without L2Bridge -->`` leaves out what the second one has, too.

``python -m tests.model_tables docs/resources/*.md`` writes them anew.
"""

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fabric_direct.documents import json_schema
from fabric_direct.model import bare_metal, networks, p4_switches
from fabric_direct.model import services as network_services
from fabric_direct.model import vm as model

TABLE = re.compile(r"<!-- fields: (\w+)(?: without (\w+))? -->\n\n((?:\|.*\n)*)")
# Letters and digits, with what else there may be, and how much of it.
NAME = re.compile(r"\^\[A-Za-z0-9\]\[A-Za-z0-9([^\]]*)\]\{0,(\d+)\}\$")
FORMATS = {
    "ipv4": "address",
    "ipv6": "address",
    "ipv4network": "subnet",
    "ipv6network": "subnet",
} | {
    "ipv4interface": "address with prefix length",
    "ipv6interface": "address with prefix length",
}


def named(name: str) -> type[BaseModel]:
    """Return the model of a name, of whatever module."""
    homes = (model, networks, network_services, p4_switches, bare_metal)
    found: type[BaseModel] = next(getattr(home, name) for home in homes if hasattr(home, name))
    return found


@cache
def table(name: str, without: str = "") -> str:
    """Return the fields of a model as a table in Markdown.

    :param without: another model, whose fields are left out.
    """
    schema = json_schema(named(name))
    known = named(without).model_fields if without else ()
    rows = ["| field | value | default | |", "|---|---|---|---|"]
    for field, each in schema["properties"].items():
        if field not in known:
            default = _default(each, field in schema.get("required", ()))
            rows.append(f"| `{field}` | {_value(each)} | {default} | {_text(each)} |")
    return "\n".join([*rows, ""])


def _value(schema: dict[str, Any]) -> str:
    """Return what a field may be, in words."""
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if options:
        return " or ".join(dict.fromkeys(_value(each) for each in options))
    if "$ref" in schema:
        return _referred(schema["$ref"].rpartition("/")[2])
    for key, words in (("const", "`{}`"), ("oneOf", "one of its types")):
        if key in schema:
            return words.format(schema[key])
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    return _plain(schema)


def _referred(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _plain(schema: dict[str, Any]) -> str:
    match schema["type"]:
        case "integer":
            return f"{schema['minimum']} to {schema['maximum']}"
        case "boolean":
            return "true, false"
        case "array":
            return _list(schema)
    if matched := NAME.fullmatch(schema.get("pattern", "")):
        return f"name ({int(matched[2]) + 1}, `{matched[1]}`)"
    return FORMATS.get(schema.get("format", ""), _example(schema))


def _list(schema: dict[str, Any]) -> str:
    if "prefixItems" in schema:
        return f"two of: {_value(schema['prefixItems'][0])}"
    most = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
    return f"list of: {_value(schema['items'])}{most}"


def _example(schema: dict[str, Any]) -> str:
    return f"as `{schema['examples'][0]}`" if "examples" in schema else "text"


def _default(schema: dict[str, Any], required: bool) -> str:
    if required:
        return "required"
    value = schema.get("default")
    if value in (None, [], {}) or isinstance(value, dict):
        return "–"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _text(schema: dict[str, Any]) -> str:
    text = schema.get("description", "")
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


def rewritten(text: str) -> str:
    """Return a page with its tables as the models are."""
    return TABLE.sub(_anew, text)


def _anew(found: re.Match[str]) -> str:
    name, without, rows = found.groups("")
    return found[0].removesuffix(rows) + table(name, without)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        Path(each).write_text(rewritten(Path(each).read_text()))
