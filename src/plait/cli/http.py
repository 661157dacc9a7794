"""The commands' way to a server: one client, its options, and errors that say what to do."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from plait.types.errors import PlaitError

DEFAULT_URL = "http://127.0.0.1:8400"
URL_VARIABLES = ("PLAIT_URL", "TINKER_BASE_URL")
KEY_VARIABLES = ("PLAIT_API_KEY", "TINKER_API_KEY")
TIMEOUT_S = 60.0
PAGE_SIZE = 500

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", help=f"Address of the server. Else {' or '.join(URL_VARIABLES)}, else {DEFAULT_URL}.", show_default=False
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", help=f"Your key. Better in {' or '.join(KEY_VARIABLES)}: others see a command line.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


class ServerError(PlaitError):
    """The server cannot be reached, or refuses. `status` 0: it gave no answer."""

    def __init__(self, message: str, remedy: str = "", status: int = 0) -> None:
        super().__init__(message, remedy)
        self.status = status


def connect(url: str | None, key: str | None) -> "ServerClient":
    """What the options say, else the variables. ServerError without a key."""
    chosen_url = url or _variable(URL_VARIABLES) or DEFAULT_URL
    chosen_key = key or _variable(KEY_VARIABLES)
    if not chosen_key:
        raise ServerError(
            "there is no key to ask the server with.",
            f"Give one with --key, or in {' or '.join(KEY_VARIABLES)}. `plait keys create` makes one.",
        )
    return ServerClient(chosen_url, chosen_key)


class ServerClient:
    """Of a server at `url` (http:// or https://), with a key. To be closed, or used as a context."""

    def __init__(self, url: str, key: str, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url.rstrip("/").removesuffix("/api/v1")
        if not self.url.startswith(("http://", "https://")):
            raise ServerError(f"--url {url!r} is no address of a server.", "It is like http://host:8400 or https://host.")
        self.key = key.strip()
        try:
            headers = {"X-API-Key": self.key}
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, follow_redirects=False)
        except (httpx.InvalidURL, UnicodeEncodeError, ValueError) as error:
            raise ServerError(f"--url {url!r} or the key is malformed: {error}.", "Look for stray characters.") from error

    def __enter__(self) -> "ServerClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def request(self, method: str, path: str, **content: Any) -> Any:
        """The JSON of the answer; None if it has none. `content` as httpx takes it: params, json, content, ..."""
        with self.stream(method, path, **content) as response:
            response.read()
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError as error:
            raise ServerError(f"{self.url}{path} did not answer with JSON.", "Does --url name a Plait server?") from error

    def get(self, path: str, /, **params: Any) -> Any:
        return self.request("GET", path, params={name: value for name, value in params.items() if value is not None})

    def pages(self, path: str, field: str, /, **params: Any) -> list[Any]:
        """All items of a listing, page after page."""
        items: list[Any] = []
        while True:
            page = self.get(path, limit=PAGE_SIZE, offset=len(items), **params)
            items += page[field]
            if not page[field] or len(items) >= page["cursor"]["total_count"]:
                return items

    def download(self, path: str, to: Path, /, **params: Any) -> int:
        """Into a new file; its bytes. A file that did not come whole is removed."""
        try:
            with self.stream("GET", path, params=params) as response, to.open("xb") as file:
                for part in response.iter_bytes():
                    file.write(part)
                return file.tell()
        except OSError as error:
            raise PlaitError(f"cannot write {to}: {error.strerror}.", "Choose another folder, or make room.") from error
        except ServerError:
            to.unlink(missing_ok=True)
            raise

    @contextmanager
    def stream(self, method: str, path: str, **content: Any) -> Iterator[httpx.Response]:
        """The answer while it comes, once it is known to be no error."""
        try:
            with self._http.stream(method, path, **content) as response:
                if not response.is_success:
                    response.read()
                    raise _refused(self.url, response)
                yield response
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _unreachable(self.url, error) from error


def _variable(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _unreachable(url: str, error: Exception) -> ServerError:
    if isinstance(error, httpx.ConnectError):
        return ServerError(
            f"no server answers at {url}: {error}.", f"Start one with `plait serve`, or name it with --url or {URL_VARIABLES[0]}."
        )
    if isinstance(error, httpx.TimeoutException):
        return ServerError(f"{url} did not answer within {TIMEOUT_S:g} s.", "Try again; its log tells what it is busy with.")
    return ServerError(f"the connection to {url} failed: {error or type(error).__name__}.", "Try again.")


def _refused(url: str, response: httpx.Response) -> ServerError:
    message = _detail(response) or f"{url} answered {response.status_code} {response.reason_phrase}."
    remedy = ""
    if response.status_code == 401:
        remedy = f"The key comes from --key, or from {' or '.join(KEY_VARIABLES)}."
    elif response.is_redirect:
        remedy = f"It points to {response.headers.get('location', 'nowhere')}: name that with --url."
    elif wait_s := response.headers.get("retry-after"):
        remedy = f"Try again in {wait_s} s."
    return ServerError(message, remedy, response.status_code)


def _detail(response: httpx.Response) -> str:
    try:
        answer = response.json()
    except ValueError:
        return ""
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        return str(answer["error"].get("message", ""))
    return str(answer["detail"]) if isinstance(answer, dict) and "detail" in answer else ""
