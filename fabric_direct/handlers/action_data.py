"""The data of operational actions, as strict as slivers."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from fabric_direct.documents.reasons import meant, problems
from fabric_direct.documents.tree import Tree
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import Frozen


class Nothing(Frozen):
    """No data."""


class Reboot(Frozen):
    """The options of a reboot."""

    hard: bool = False
    """A power cycle, without asking the guest."""


def action_data(models: Mapping[str, type[Frozen]], action: str, data: dict[str, Any]) -> Any:
    """Return the data of an action as its model has them: no value is converted.

    :param models: those of the actions that there are.
    :raises InvalidSliver: if there is no such action, or its data are wrong.
    """
    if action not in models:
        raise InvalidSliver(f"no action {action!r}{meant(action, [*models])}", field="action")
    model = models[action]
    try:
        return model.model_validate_json(to_json(data), strict=True)
    except PydanticSerializationError as error:
        raise InvalidSliver(
            f"bad data for {action}", field="data", why="must be values of JSON"
        ) from error
    except ValidationError as error:
        first, *_ = problems(error, model, Tree(data, {}), secret=True)
        field = f"data.{first.field}".rstrip(".")
        raise InvalidSliver(f"bad data for {action}", field=field, why=first.text) from error
