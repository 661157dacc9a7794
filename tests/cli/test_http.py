"""The commands' way to a server: every way in which it fails says what to do."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from plait.cli.http import DEFAULT_URL, ServerClient, ServerError, connect
from plait.types.errors import PlaitError

Answer = Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, str], bytes]]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PLAIT_URL", "TINKER_BASE_URL", "PLAIT_API_KEY", "TINKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, headers, body = answer(self)
                self.send_response(status)
                for name, value in ({"content-length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def error_of(url: str) -> ServerError:
    with ServerClient(url, "tml-a-b") as client, pytest.raises(ServerError) as caught:
        client.get("/v1/keys")
    return caught.value


def test_options_stand_over_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServerError, match="no key"):
        connect(None, None)
    assert connect(None, "tml-a-b").url == DEFAULT_URL
    monkeypatch.setenv("TINKER_BASE_URL", "http://tinker:1/")
    monkeypatch.setenv("TINKER_API_KEY", "tml-tinker-x")
    assert connect(None, None).url == "http://tinker:1"
    monkeypatch.setenv("PLAIT_URL", "https://plait/api/v1")
    assert connect(None, None).url == "https://plait"
    assert connect("http://given", None).url == "http://given"


@pytest.mark.parametrize("url", ["localhost:8400", "ftp://host", "", "http://host:port"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ServerError, match="--url"):
        ServerClient(url, "tml-a-b")


def test_a_key_that_no_header_can_hold_is_refused() -> None:
    with pytest.raises(ServerError, match="malformed"):
        ServerClient("http://host", "tml-é-€")


def test_no_server_there() -> None:
    error = error_of("http://127.0.0.1:1")
    assert "no server answers at http://127.0.0.1:1" in error.message
    assert "plait serve" in error.remedy


def test_a_refusal_is_told_in_the_servers_words(serve: Callable[[Answer], str]) -> None:
    error = error_of(serve(lambda _: (403, {}, b'{"detail": "members may not."}')))
    assert (error.message, error.status) == ("members may not.", 403)
    assert error_of(serve(lambda _: (404, {}, b'{"error": {"message": "no such route."}}'))).message == "no such route."
    assert "PLAIT_API_KEY" in error_of(serve(lambda _: (401, {}, b'{"detail": "unknown key."}'))).remedy
    assert error_of(serve(lambda _: (503, {"retry-after": "5"}, b'{"detail": "it stops."}'))).remedy == "Try again in 5 s."


def test_another_kind_of_server_is_told(serve: Callable[[Answer], str]) -> None:
    assert "502" in error_of(serve(lambda _: (502, {}, b"<html>"))).message
    assert "Plait server" in error_of(serve(lambda _: (200, {}, b"<html>"))).remedy
    assert "https://else" in error_of(serve(lambda _: (301, {"location": "https://else"}, b""))).remedy
    assert "connection" in error_of(serve(lambda _: (200, {"content-length": "100"}, b"{}"))).message


def test_all_pages_are_read(serve: Callable[[Answer], str]) -> None:
    def page(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        offset = int(request.path.partition("offset=")[2].partition("&")[0])
        body = {"rows": list(range(5))[offset : offset + 2], "cursor": {"total_count": 5}}
        return 200, {}, json.dumps(body).encode()

    with ServerClient(serve(page), "tml-a-b") as client:
        assert client.pages("/rows", "rows", tenant_id=None) == [0, 1, 2, 3, 4]


def test_a_file_that_did_not_come_whole_is_removed(serve: Callable[[Answer], str], tmp_path: Path) -> None:
    with ServerClient(serve(lambda _: (200, {}, b"x" * 100)), "tml-a-b") as client:
        assert client.download("/file", tmp_path / "whole") == 100
        with pytest.raises(PlaitError, match="cannot write"):
            client.download("/file", tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == b"x" * 100
    torn = serve(lambda _: (200, {"content-length": "1000"}, b"x"))
    with ServerClient(torn, "tml-a-b") as client, pytest.raises(ServerError):
        client.download("/file", tmp_path / "part")
    assert not (tmp_path / "part").exists()
