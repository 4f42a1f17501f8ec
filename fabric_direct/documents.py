"""Documents that people write: YAML or JSON files, read safely and validated."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from fabric_direct.errors import FabricDirectError

M = TypeVar("M", bound=BaseModel)


def load(path: Path, model: type[M], error: type[FabricDirectError]) -> M:
    """Read, parse and validate a document."""
    raise NotImplementedError
