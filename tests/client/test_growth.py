"""A long run does not grow (P60): memory and open files of the controller and its workers settle."""

import asyncio
from pathlib import Path

import psutil

from plait.client.runs import drive, open_run
from plait.config.load import effective_toml
from plait.observe.events import StepCommitted
from plait.state.rundir import RunDirectory
from plait.tasks.driver import RunDriver
from tests.runs import tiny_settings, tiny_task, worker_pids

STEPS, FIRST, LAST = 60, 20, 60
MAX_GROWTH_BYTES = 12 * 2**20
"""In controller and rollout. The trainer, whose library compiles a kernel for each new shape, is looked at in tests/training."""


MAX_MORE_FILES = 8
"""Some are open at one moment and not at another; a leak in each step would be of forty."""


def test_memory_and_open_files_settle(tmp_path: Path) -> None:
    task = tiny_task("a", steps=STEPS, groups_per_step=1, group_size=2, sampling={"max_new_tokens": 4})
    settings = tiny_settings(tmp_path, task)
    directory = RunDirectory.create(tmp_path / "runs", "long", effective_toml(settings))
    drivers: list[RunDriver] = []
    seen: dict[int, dict[str, tuple[int, int]]] = {}

    def measure(event: object) -> None:
        if isinstance(event, StepCommitted) and event.step in (FIRST, LAST):
            processes = {"controller": psutil.Process().pid, **worker_pids(drivers[0])}
            seen[event.step] = {name: _usage(psutil.Process(pid)) for name, pid in processes.items()}

    with open_run(settings, directory, resume=False) as run:
        run.listeners.append(measure)
        assert asyncio.run(drive(settings, directory, run, drivers.append)) == "done"
    for name, (memory, files) in seen[LAST].items():
        memory_before, files_before = seen[FIRST][name]
        if name != "train":
            assert memory - memory_before < MAX_GROWTH_BYTES, f"{name} grew by {(memory - memory_before) / 2**20:.1f} MiB"
        assert files <= files_before + MAX_MORE_FILES, f"{name} holds {files} files, {files_before} before"


def _usage(process: psutil.Process) -> tuple[int, int]:
    return process.memory_info().rss, process.num_fds()
