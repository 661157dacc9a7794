"""A Plait server over HTTP: requests, and the events of a run as they come."""

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException, HTTPResponse
from typing import NamedTuple

from plait.types.errors import PlaitError

DEFAULT_URL = "http://127.0.0.1:8400"
URL_VARIABLES = ("PLAIT_URL", "TINKER_BASE_URL")
KEY_VARIABLES = ("PLAIT_API_KEY", "TINKER_API_KEY")
TIMEOUT_S = 60.0
RETRIES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Waits before going on with a stream that broke off; a server takes about as long to start again."""


class ServerEvent(NamedTuple):
    id: str
    kind: str
    data: str


class ServerError(PlaitError):
    """`status` of the answer; 0: there was none."""

    def __init__(self, message: str, remedy: str, status: int = 0) -> None:
        super().__init__(message, remedy)
        self.status = status


class ServerLink:
    """The address and key that are given, or else those of the environment."""

    def __init__(self, url: str | None = None, key: str | None = None, environment: Mapping[str, str] = os.environ) -> None:
        self.url = (url or _first(URL_VARIABLES, environment) or DEFAULT_URL).rstrip("/")
        found = key or _first(KEY_VARIABLES, environment)
        if not self.url.startswith(("http://", "https://")):
            raise ServerError(f"the server's address is {self.url!r}.", "Give one like http://127.0.0.1:8400 (--url or PLAIT_URL).")
        if not found:
            raise ServerError("there is no key.", "Give --key, or set PLAIT_API_KEY or TINKER_API_KEY.")
        self._key = found

    def request(self, method: str, path: str, query: Mapping[str, object] | None = None, body: bytes | None = None) -> bytes:
        """The body of the answer. Raises ServerError with what the server says."""
        with self._open(method, path, query, body, {}) as response:
            return response.read()

    def json(
        self, method: str, path: str, query: Mapping[str, object] | None = None, body: bytes | None = None
    ) -> dict[str, object]:
        content = self.request(method, path, query, body)
        answer: dict[str, object] = json.loads(content) if content else {}
        return answer

    def events(self, path: str, follow: bool = True, sleep: Callable[[float], None] = time.sleep) -> Iterator[ServerEvent]:
        """Each event once, the one of kind "end" last, across lost connections and restarts. `follow`: until the run ends."""
        last_id, num_failures = "", 0
        while True:
            try:
                with self._open(
                    "GET", path, {"follow": str(follow).lower()}, None, {"Last-Event-ID": last_id} if last_id else {}
                ) as response:
                    if response.status == 204:
                        return
                    for event in read_events(response):
                        if event.kind == "end" and json.loads(event.data)["state"] != "interrupted":
                            yield event
                            return
                        if event.kind != "end":
                            yield event
                        last_id, num_failures = event.id, 0
                error: Exception = ServerError("the server closed the connection.", "")
            except ServerError as failure:
                if failure.status not in (0, 502, 503):
                    raise
                error = failure
            except (OSError, HTTPException) as failure:
                error = failure
            if num_failures == len(RETRIES_S):
                raise ServerError(f"the stream of events broke off: {error}", "Ask again once the server is back.") from error
            sleep(RETRIES_S[num_failures])
            num_failures += 1

    def _open(
        self, method: str, path: str, query: Mapping[str, object] | None, body: bytes | None, headers: Mapping[str, str]
    ) -> HTTPResponse:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        url = self.url + path + (f"?{urllib.parse.urlencode(given)}" if given else "")
        kind = {"Content-Type": "application/octet-stream"} if body is not None else {}
        request = urllib.request.Request(url, body, {"X-API-Key": self._key, **kind, **headers}, method=method)
        try:
            response: HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_S)
            return response
        except urllib.error.HTTPError as error:
            with error:
                remedy = f"The key comes from --key, or from {' or '.join(KEY_VARIABLES)}." if error.code == 401 else ""
                raise ServerError(_detail(error), remedy, error.code) from error
        except (OSError, HTTPException) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            raise ServerError(
                f"cannot reach {self.url}: {cause}.", "Start it with `plait serve`, or give another --url."
            ) from error


def path_of(*parts: str) -> str:
    """ "/v1/tasks/NAME", each part quoted."""
    return "/v1/" + "/".join(urllib.parse.quote(part, safe="") for part in parts)


def read_events(lines: Iterator[bytes] | HTTPResponse) -> Iterator[ServerEvent]:
    """Server-sent events; comments are passed over."""
    fields: dict[str, str] = {}
    for line in lines:
        text = line.decode().rstrip("\r\n")
        if text and not text.startswith(":"):
            name, _, value = text.partition(":")
            fields[name] = value.removeprefix(" ")
        elif not text and fields:
            yield ServerEvent(fields.get("id", ""), fields.get("event", "message"), fields.get("data", ""))
            fields = {}


def _first(names: tuple[str, ...], environment: Mapping[str, str]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["detail"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"the server answered {error.code} {error.reason}."
