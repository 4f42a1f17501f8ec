"""The stand-in for OpenStack that `make bench-scale` measures on serves what the library asks."""

from pathlib import Path

import pytest

from fabric_direct.processor import HandlerProcessor
from tests.bench import cloud_stand_in
from tests.bench.cloud_stand_in import StandIn
from tests.bench.scale import Cloud, sliver
from tests.outcomes import done


def test_a_sliver_lives_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_stand_in, "LATENCY", {})
    monkeypatch.setattr(cloud_stand_in, "READ", 0.0)
    monkeypatch.setattr(cloud_stand_in, "TAKES", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with StandIn(tmp_path).serving() as stand_in:
        cloud = Cloud(stand_in.base, tmp_path)
        with HandlerProcessor(cloud.site()) as processor:
            done(processor.create(sliver(1)).result())
            done(processor.delete(sliver(1).ref()).result())

        assert cloud.requests()["POST compute servers"] == 1
        assert not stand_in.things["servers"]
