"""Who runs workers where, and how this process comes to a Ray cluster; no cluster is started."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.cli import serve as serve_command
from plait.cli.main import main
from plait.cluster.executors import ray_session
from plait.cluster.executors.choice import make_executor
from plait.cluster.executors.process import ProcessExecutor
from plait.config.run import WorkerSettings
from plait.config.server import ServerSettings
from plait.types.errors import ConfigError


def test_a_server_runs_its_workers_on_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[ServerSettings] = []

    def run_server(settings: ServerSettings, on_listening: Callable[[Any], None]) -> None:
        served.append(settings)

    monkeypatch.setattr(serve_command, "run_server", run_server)
    monkeypatch.setattr(serve_command, "set_up_logging", lambda log_format: None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="0"):
        main(["serve", "--ray", "10.0.0.5:6379"])
    assert (served[0].workers.executor, served[0].workers.ray_address) == ("ray", "10.0.0.5:6379")


def test_ray_is_imported_only_where_it_is_chosen() -> None:
    before = "ray" in sys.modules
    assert isinstance(make_executor(WorkerSettings(), [], None), ProcessExecutor)
    assert type(make_executor(WorkerSettings(executor="ray"), [], None)).__name__ == "RayExecutor"
    assert ("ray" in sys.modules) == before, "not before it starts a worker"


def test_without_ray_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'plait\[ray\]'"):
        ray_session.connect("auto", 1)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("ray://127.0.0.1:10001", "does not run through a Ray client"),
        ("head", 'is neither "HOST:PORT" nor "auto" nor "local"'),
        ("head:99999", 'is neither "HOST:PORT" nor "auto" nor "local"'),
        ("127.0.0.1:1", "no Ray cluster is reached at .*refused.* Start one with"),
    ],
)
def test_an_address_without_a_cluster_is_refused_at_once(address: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ray_session.connect(address, 1)


def test_folders_of_makers_that_are_gone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / "plait-ray-left" / "session").mkdir(parents=True)
    first = ray_session.LockedFolder()
    second = ray_session.LockedFolder()
    assert sorted(tmp_path.iterdir()) == sorted([first.path, second.path]), "one that is in use stays"
    first.remove()
    second.remove()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_taken_for_a_leftover_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_session.tempfile, "gettempdir", lambda: str(tmp_path))
    lock, taken = ray_session.fcntl.flock, list[Path]()

    def late(descriptor: int, operation: int) -> None:
        """Another process starts just before the first lock."""
        if not taken:
            taken.extend(tmp_path.iterdir())
            taken[0].rmdir()
        lock(descriptor, operation)

    monkeypatch.setattr(ray_session.fcntl, "flock", late)
    folder = ray_session.LockedFolder()
    assert folder.path.is_dir()
    assert folder.path not in taken
    folder.remove()
