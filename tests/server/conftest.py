"""One server for the whole test session, and servers that a test may break."""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TINKER_TELEMETRY", "0")

OwnServer = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(scope="session")
def _session_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tests.server.server_process import running_server

    with running_server(tmp_path_factory.mktemp("server"), WORKERS__TRAIN_RANKS=2) as process:
        yield process


@pytest.fixture
def server(_session_server: Any) -> Iterator[Any]:
    """A `ServerProcess` that tests share: it must be left running. The SDK's clients are closed after each test."""
    assert _session_server.is_running, f"a former test ended the server:\n{_session_server.tail()}"
    yield _session_server
    _session_server.close_clients()


@pytest.fixture
def own_server(tmp_path: Path) -> OwnServer:
    """`with own_server(KEY=value, ...) as server`: to be killed and started again at will. `value` is a server setting."""
    from tests.server.server_process import running_server

    return lambda **settings: running_server(tmp_path / "own", **settings)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (process := getattr(item, "funcargs", {}).get("_session_server")) is not None:
        report.sections.append(("server log", process.tail()))
    return report
