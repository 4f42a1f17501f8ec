"""The base of all values: frozen models, and types of identifiers, names, keys and numbers."""

import ast
import base64
import binascii
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    ValidationInfo,
)
from pydantic_core import CoreSchema


class Frozen(BaseModel):
    """Base of the models: immutable, without unknown fields."""

    # A traceback shows the cause of a refusal, too: it must not repeat a key or a boot script.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe each field by the docstring below it.

        Pydantic's ``use_attribute_docstrings`` reads the source of every model when it is imported; that
        takes as long as all the rest of the import.
        """
        made = handler(schema)
        fields = handler.resolve_ref_schema(made).get("properties", {})
        for name, text in _field_docs(cls):
            if name in fields:
                fields[name]["description"] = text
        return made


def _field_docs(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each field of a model that has one."""
    for base in reversed(model.__mro__):
        if issubclass(base, Frozen):
            yield from _docs_in(base.__module__).get(base.__name__, ())


@cache
def _docs_in(module: str) -> dict[str, list[tuple[str, str]]]:
    """Return the names and docstrings of the attributes of a module's classes, by class."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {each.name: list(_docs_below(each.body)) for each in classes}


def _docs_below(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, below in pairwise(body):
        match statement, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)


# Ids and names become host names, libvirt names and aliases, file names and XML. libvirt takes only
# letters, digits, '-' and '_' in a user alias, so an id has no dot; a name may have one.
SliverId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
ComponentId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,30}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
# Glance takes 255 characters.
ImageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")]
# A Linux interface name: IFNAMSIZ (16) less the terminating zero.
LinkName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$")]
PortName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:-]{0,62}$")]
"""A port of a switch: a Linux interface, or a router's as ``HundredGigE0/0/0/5``."""
Vlan = Annotated[int, Field(ge=1, le=4094, strict=True)]
Mbps = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Trait = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,254}$")]
# The other names of models in FIM's catalogue of components (fabric-fim 2.0), and the short form of one.
_SYNONYMS = {
    "Quadro-RTX-6000": "RTX6000",
    "Quadro-RTX-6000-8000": "RTX6000",
    "A30-PCIe": "A30",
    "Alveo-U280": "Xilinx-U280",
    "Alveo-SN1022": "Xilinx-SN1022",
}


def shown_model(text: str) -> str:
    """Return a hardware model's name as it is shown and compared, without blanks: ``Tesla-T4``.

    Of several names that FIM's catalogue has for a model, it is the first: ``A30`` for ``A30 PCIe``.
    """
    name = re.sub(r"[ /]+", "-", text).strip("-._")
    return _SYNONYMS.get(name, name)


ModelName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._/-]{0,62}$"),
    AfterValidator(shown_model),
    Field(examples=["Tesla T4", "RTX6000", "A30", "ConnectX-6"]),
]
"""A hardware model as FIM spells it, or with ``-`` for blanks and slashes, which is how it is shown."""


def _type_and_model(text: str) -> str:
    kind, sign, model = text.partition("_")
    return f"{kind}{sign}{shown_model(model)}"


TypeAndModel = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._/-]{0,126}$"),
    AfterValidator(_type_and_model),
    Field(examples=["GPU", "FPGA_Xilinx-SN1022"]),
]
"""A resource type, or one with a hardware model: ``Type_Model``."""
AUTO = "auto"
"""As a sliver's host: placement chooses one."""


FOLDER = "folder"
"""Key of the directory that a :data:`LocalPath` is relative to, in the context of a validation."""


def _not_empty(value: object) -> object:
    if value == "":
        raise ValueError("names no file")
    return value


def _beside(path: Path, info: ValidationInfo) -> Path:
    try:
        path = path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"the home directory of {path.parts[0]} is not known") from error
    folder: Path | None = (info.context or {}).get(FOLDER)
    return path if folder is None else folder / path


LocalPath = Annotated[Path, BeforeValidator(_not_empty), AfterValidator(_beside)]
"""A file or directory of this machine, relative to the file that names it.

It may begin with ``~`` or ``~user``; one of a user that is not there is refused.
"""


def _unicast_mac(text: str) -> str:
    if int(text[:2], 16) & 1:
        raise ValueError("must not be a multicast address")
    if text == "00:00:00:00:00:00":
        raise ValueError("must not be the all-zero address")
    return text


Mac = Annotated[
    str,
    StringConstraints(pattern=r"^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$", to_lower=True),
    AfterValidator(_unicast_mac),
    Field(examples=["52:54:00:12:34:56"]),
]


# Line breaks, and all other control characters but the tab.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def _public_key(text: str) -> str:
    """Check an OpenSSH public key line: the base64 part must begin with the name of the algorithm."""
    words = text.strip().split(None, 2)
    if _CONTROL.search(text.strip()) or len(words) < 2:
        raise ValueError("must be one line: algorithm, base64 key, optional comment")
    try:
        blob = base64.b64decode(words[1], validate=True)
    except binascii.Error as error:
        raise ValueError(f"is not a public key: {error}") from error
    length = int.from_bytes(blob[:4])
    if blob[4 : 4 + length] != words[0].encode() or len(blob) < 4 + length + 32:
        raise ValueError("is not a public key of the algorithm that it names")
    return text.strip()


SshPublicKey = Annotated[str, StringConstraints(max_length=16_384), AfterValidator(_public_key)]


def with_prefix(value: Any) -> Any:
    """Return an address as it is; raise ValueError if it lacks its prefix length."""
    if isinstance(value, str) and "/" not in value:
        raise ValueError("must have a prefix length, for example 10.0.0.5/24")
    return value


def refuse_twice(what: str, values: list[str]) -> None:
    """Raise ValueError if a value occurs twice, naming the first one."""
    for value, number in Counter(values).items():
        if number > 1:
            raise ValueError(f"{what} {value} is given twice")
