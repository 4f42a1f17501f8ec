"""What a wheel has below ``share/``: manual page, completion for shells, units of systemd.

hatchling runs it; the first two are made now. An editable installation has none of it.
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SharedFiles(BuildHookInterface[Any]):
    """Adds the files to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write what is made, below ``build/share``, and name all for the wheel."""
        if version == "editable":
            return
        made = Path(self.root, "build/share")
        for path, text in self._texts().items():
            file = made / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            build_data["shared_data"][str(file)] = f"share/{path}"
        units = str(Path(self.root, "packaging/systemd"))
        build_data["shared_data"][units] = "share/fabric-direct/systemd"

    def _texts(self) -> dict[str, str]:
        """Return the texts by their paths, from the command line as it is in this directory."""
        sys.path.insert(0, self.root)
        try:
            from fabric_direct.cli.manual import shared_files  # noqa: PLC0415 - it is found only now
        finally:
            sys.path.remove(self.root)
        return shared_files(self.metadata.version)
