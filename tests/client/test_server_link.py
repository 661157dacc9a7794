"""The command line's way to a server: addresses and keys, errors in the server's words, streams that break off."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from plait.client.server_link import RETRIES_S, ServerError, ServerLink, path_of, read_events

EVENTS = [b"event: step\nid: 10\ndata: {}\n\n", b": quiet\n\n", b"event: step\nid: 20\ndata: {}\n\n"]


class FakeServer(BaseHTTPRequestHandler):
    """Breaks off after each event, and answers 503 in between."""

    seen: list[tuple[str, str | None, str | None]] = []

    def do_GET(self) -> None:
        last_id = self.headers["Last-Event-ID"]
        self.seen.append((self.path, self.headers["X-API-Key"], last_id))
        if self.path.startswith("/v1/tasks/refused"):
            return self._answer(422, json.dumps({"detail": "steps = 0: too few"}).encode())
        if len(self.seen) % 2 == 0:
            return self._answer(503, b"{}")
        if self.path.startswith("/v1/tasks/run%2Fx/events"):
            rest = {None: EVENTS[0], "10": EVENTS[1] + EVENTS[2], "20": b'event: end\nid: 20\ndata: {"state": "done"}\n\n'}
            return self._answer(200, rest[last_id])
        return self._answer(200, b"{}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    FakeServer.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_events_come_once_across_lost_connections(url: str) -> None:
    waits: list[float] = []
    link = ServerLink(url, "tml-key", {})
    assert [(e.id, e.kind) for e in link.events(path_of("tasks", "run/x", "events"), sleep=waits.append)] == [
        ("10", "step"),
        ("20", "step"),
        ("20", "end"),
    ]
    assert [last_id for _, _, last_id in FakeServer.seen] == [None, "10", "10", "20", "20"]
    assert {key for _, key, _ in FakeServer.seen} == {"tml-key"}
    assert waits == [RETRIES_S[0], RETRIES_S[1], RETRIES_S[0], RETRIES_S[1]]


def test_the_servers_words_are_told(url: str) -> None:
    with pytest.raises(ServerError, match="steps = 0: too few") as caught:
        ServerLink(url, "tml-key", {}).json("GET", path_of("tasks", "refused"))
    assert caught.value.status == 422


def test_no_server_is_told_with_its_address() -> None:
    link = ServerLink("http://127.0.0.1:9", "tml-key", {})
    with pytest.raises(ServerError, match=r"cannot reach http://127\.0\.0\.1:9"):
        link.request("GET", "/v1/tasks")
    waits: list[float] = []
    with pytest.raises(ServerError, match="broke off"):
        list(link.events("/v1/tasks/x/events", sleep=waits.append))
    assert waits == list(RETRIES_S)


def test_address_and_key_come_from_arguments_then_from_the_environment() -> None:
    variables = {"TINKER_BASE_URL": "http://b", "TINKER_API_KEY": "k"}
    assert ServerLink(None, None, variables).url == "http://b"
    assert ServerLink(None, None, variables | {"PLAIT_URL": "http://a/"}).url == "http://a"
    assert ServerLink("http://c", None, variables).url == "http://c"
    with pytest.raises(ServerError, match="no key"):
        ServerLink("http://c", None, {})
    with pytest.raises(ServerError, match="address"):
        ServerLink("c:8400", "k", {})


def test_comments_and_partial_events_are_passed_over() -> None:
    lines = [b": hello\n", b"\n", b"event: a\n", b"id: 1\r\n", b"data: x: y\n", b"\n", b"event: b\n"]
    assert list(read_events(iter(lines))) == [("1", "a", "x: y")]
