# ruff: noqa: D102, D103, ARG002, S102, E402 - it is sent as it stands, and runs on what is there
# mypy: ignore-errors
"""Take the modules of this package from standard input, in the worker's Python, and start ``serve``.

This file is read as text and passed to ``python -c``; no module imports it.
"""

import json
import os
import sys
import zlib
from importlib.machinery import ModuleSpec


def read(length):
    data = b""
    while len(data) < length:
        piece = os.read(0, length - len(data))
        if not piece:
            sys.exit("the connection ended")
        data += piece
    return data


sources = json.loads(zlib.decompress(read(int.from_bytes(read(4), "big"))))


class Sent:
    """Finds and loads the modules that were sent."""

    def find_spec(self, name, path=None, target=None):
        package = any(other.startswith(name + ".") for other in sources)
        return ModuleSpec(name, self, is_package=package) if name in sources else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        exec(compile(sources[name], name, "exec"), module.__dict__)


sys.meta_path.insert(0, Sent())

from fabric_direct.drivers.hosts.agent.serve import serve

serve()
