"""The HTTP interface keeps to its own OpenAPI document, whatever is sent (schemathesis)."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import BaseSchema, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from fabric_direct.site.config import Site
from fabric_direct.zones.server import ZoneServer
from tests.conftest import FAKE_DRIVERS

TOKEN = "schema-test"  # noqa: S105
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BaseSchema]:
    path: Path = tmp_path_factory.mktemp("zone")
    (path / "tokens").write_text(TOKEN)
    server = ZoneServer(
        Site(
            site="SERVED",
            state_dir=path / "state",
            drivers=FAKE_DRIVERS,
            guest="fake",
            hosts={"w1": {}, "w2": {}},
            zone={"listen": "127.0.0.1:0", "token_file": path / "tokens", "deadline": 2.0},
        )
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    yield schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=HEADERS)
    server.stop()
    thread.join(60)


load_all_checks()
# What a document cannot say is refused as well: kinds that are named twice, a name that is too long to
# be numbered, an id of a reservation that is not there.
EXCLUDED = CHECKS.get_by_names(["positive_data_acceptance"])


EITHER = tuple(GenerationMode)


@pytest.mark.parametrize(
    ("method", "path", "modes"),
    [
        ("get", "/zones", EITHER[:1]),  # there is nothing in it that could be wrong
        ("post", "/zones/select", EITHER),
        ("post", "/zones/boot", EITHER),
        ("get", "/reservations/{reservation_id}", EITHER),
        ("delete", "/reservations/{reservation_id}", EITHER),
    ],
)
def test_every_answer_is_as_the_document_says(
    api: BaseSchema, method: str, path: str, modes: tuple[GenerationMode, ...]
) -> None:
    operation = api[path][method]

    @given(st.one_of(operation.as_strategy(generation_mode=mode) for mode in modes))
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    def holds(case: schemathesis.Case) -> None:
        case.call_and_validate(headers=HEADERS, excluded_checks=EXCLUDED)

    holds()
