"""yanglint, which is libyang's: what it says of documents that are for NSO."""

import json
import subprocess
from tempfile import NamedTemporaryFile

from labs.network.nso_devices import Json
from labs.network.nso_standin import ROOT, YANG


def refusal(services: Json) -> str:
    """Return why yanglint refuses services, by their lists; empty if it shows them as they are."""
    command = ["yanglint", "-t", "config", "-f", "json", *sorted(map(str, YANG.glob("*.yang")))]
    with NamedTemporaryFile("w", suffix=".json") as document:  # the suffix tells the format
        json.dump({ROOT: services}, document)
        document.flush()
        command.append(document.name)
        told = subprocess.run(command, check=False, capture_output=True, text=True)
    if told.returncode:
        return told.stderr.strip() or f"yanglint ends with {told.returncode}"
    assert (told.stderr, json.loads(told.stdout)) == ("", {ROOT: services} if services else {})
    return ""
