"""What the unit tests share beside the slivers: a cloud as a test scripts it, and files in memory."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from hypothesis import settings

from tests.unit.cores import keep_to_one_core
from tests.unit.openstack_api import api, clouds_folder, kept_connection, kept_folder, loopback

# How long an example takes is no property of the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Modules and tests that are collected are no garbage: it is looked for when they are there.
gc.disable()

__all__ = ["api", "clouds_folder", "kept_connection", "kept_folder", "loopback", "tmp_path"]

_MEMORY = Path("/dev/shm")
_ENOUGH = 256 * 1024**2
"""Bytes that must be free in memory; the files of all tests under way take a tenth of that."""


def pytest_configure(config: pytest.Config) -> None:
    """Seed the generators once: no test draws from those that all share."""
    config.option.randomly_reset_seed = False
    keep_to_one_core(config)


def pytest_collection_finish() -> None:
    """Let the garbage collector, also that of forked children, pass over modules and collected tests.

    It looks seldom: what tests leave behind goes without it, nearly all of it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the tests' files are: in memory if there is room, so that nothing waits for a disk."""
    if not (os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ENOUGH):
        yield tmp_path_factory.getbasetemp()
        return
    with tempfile.TemporaryDirectory(prefix="fabric-direct-", dir=_MEMORY) as folder:
        yield Path(folder)


@pytest.fixture(scope="session", autouse=True)
def one_authority(in_memory: Path) -> None:
    """The first authority that this machine trusts: to read all of them takes longer than a test."""
    bundle = Path(certifi.where()).read_text()
    end = "-----END CERTIFICATE-----\n"
    (in_memory / "authority.pem").write_text(bundle.partition(end)[0] + end)
    os.environ["SSL_CERT_FILE"] = str(in_memory / "authority.pem")


@pytest.fixture
def tmp_path(in_memory: Path) -> Iterator[Path]:
    """A folder that a passed test does not leave behind."""
    path = Path(tempfile.mkdtemp(dir=in_memory))
    yield path
    shutil.rmtree(path, ignore_errors=True)
