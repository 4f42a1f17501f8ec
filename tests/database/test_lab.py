"""The server of these tests begins well, however the run before ended."""

from collections.abc import Callable

import psycopg


def test_a_server_that_was_left_hanging_answers_when_it_is_up(
    server: str, upset: Callable[[str], None]
) -> None:
    upset("hang")

    upset("up")

    with psycopg.connect(server) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
