"""P62: two real servers with data folders of their own and one PostgreSQL database. Never do both write."""

import contextlib
import time
from pathlib import Path

import pytest

from tests.server.server_process import ServerProcess

NOTICE_S = 120.0
"""By then PostgreSQL has seen that the first server's connection is gone."""


def start_within(server: ServerProcess, timeout_s: float) -> None:
    end_s = time.monotonic() + timeout_s
    while True:
        try:
            server.start()
            return
        except RuntimeError as error:
            if "in use by another server" not in str(error) or time.monotonic() > end_s:
                raise


def test_the_second_is_refused_until_the_first_is_dead(tmp_path: Path, postgres_url: str) -> None:
    first = ServerProcess(tmp_path / "one", DATABASE_URL=postgres_url)
    second = ServerProcess(tmp_path / "two", DATABASE_URL=postgres_url, MODEL__PATH=first.model)
    with contextlib.ExitStack() as stack:
        stack.callback(second.kill)
        stack.callback(first.kill)
        first.start()
        with pytest.raises(RuntimeError, match=rf"in use by another server \(plait serve, process {first.pid} "):
            second.start()
        assert not second.is_running
        session = _open_session(first, first.admin.key)
        first.kill()
        start_within(second, NOTICE_S)
        assert _heartbeat(second, first.admin.key, session) == 200  # What the first one stored is what the second serves.
        with pytest.raises(RuntimeError, match=rf"process {second.pid} "):
            first.start()


def _open_session(server: ServerProcess, key: str) -> str:
    body = {"tags": [], "user_metadata": {}, "sdk_version": "0.38.0", "type": "create_session"}
    with server.http(key) as http:
        return str(http.post("/create_session", json=body).raise_for_status().json()["session_id"])


def _heartbeat(server: ServerProcess, key: str, session_id: str) -> int:
    with server.http(key) as http:
        return http.post("/session_heartbeat", json={"session_id": session_id, "type": "session_heartbeat"}).status_code
