"""Keep bytecode, also where the environment forbids it; import this before what takes long to compile.

Each worker of pytest-xdist and each process that a test starts would compile all files anew.
"""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
