"""JSON Schema of the documents, for editors and other programs."""

from typing import Any

from pydantic import BaseModel


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the documents that :func:`parse` takes for ``model``."""
    schema = model.model_json_schema()
    for definition in schema.get("$defs", {}).values():
        _require_the_tag(definition)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _require_the_tag(definition: dict[str, Any]) -> None:
    """Ask for the field that tells the kinds of a component or network apart, as parsing does."""
    tags = [name for name, field in definition.get("properties", {}).items() if "const" in field]
    if tags:
        definition["required"] = sorted({*definition.get("required", []), *tags})
