"""Whole runs whose workers are threads, or actors of a Ray cluster of several nodes on this machine."""

from pathlib import Path
from typing import Any

import pytest

from plait.client.runs import run_file
from plait.config.load import effective_toml
from plait.state.rundir import RunDirectory
from tests.runs import digests, tiny_settings, tiny_task

TASKS = (tiny_task("a"), tiny_task("b", lora={"rank": 8}))
Digests = dict[str, list[tuple[int, str, float]]]


def run(folder: Path, **workers: Any) -> Digests:
    settings = tiny_settings(folder, *TASKS, workers={"environment_processes": 1, **workers})
    directory = RunDirectory.create(folder / "runs", settings.name, effective_toml(settings))
    assert run_file(settings, directory, show_progress=False) == "done"
    return {task["name"]: digests(directory, task["name"]) for task in TASKS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def expected(folder: Path) -> Digests:
    """What processes give."""
    return run(folder)


def test_threads_give_the_same_adapters(folder: Path, expected: Digests) -> None:
    assert run(folder, executor="thread") == expected


def test_ray(folder: Path, expected: Digests) -> None:
    assert run(folder, executor="ray", ray_address="local") == expected
