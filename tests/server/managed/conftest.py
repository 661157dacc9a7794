"""A server for managed tasks, on a model that is large enough for bits to matter."""

from collections.abc import Iterator

import pytest

from plait.models.tiny import make_tiny_model
from tests.server.managed.managed_server import ManagedServer
from tests.server.server_process import running_server


@pytest.fixture(scope="session")
def _managed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagedServer]:
    folder = tmp_path_factory.mktemp("managed")
    make_tiny_model(folder / "model", hidden_size=128, intermediate_size=256, head_dim=64)
    with running_server(folder, WORKERS__ENVIRONMENT_PROCESSES=1, QUOTAS__LIVE_ADAPTERS=4) as process:
        yield ManagedServer(process)


@pytest.fixture
def managed(_managed_server: ManagedServer) -> ManagedServer:
    """Shared by the tests; one may restart it."""
    assert _managed_server.process.is_running, _managed_server.process.tail()
    return _managed_server
