"""Jobs on base models of their own, alone or together on one worker group."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plait.client.environments import start_environments
from plait.cluster.groups.group_placement import GroupPlacement
from plait.cluster.groups.messages import ConfigureGroup
from plait.cluster.groups.router import Router
from plait.cluster.groups.worker_groups import WorkerGroups
from plait.cluster.workers import MakeWorkers, Workers
from plait.config.run import RunSettings
from plait.models.tiny import make_tiny_model
from plait.models.tokenizer import Tokenizer
from plait.observe.log import EventLog
from plait.state.rundir import RunDirectory
from plait.tasks.driver import RunDriver
from plait.tasks.own_compute import OwnCompute
from tests.runs import digests, tiny_settings, tiny_task

SHAPES: dict[str, dict[str, Any]] = {
    "a": {"hidden_size": 128, "intermediate_size": 256, "head_dim": 64},
    "b": {"hidden_size": 128, "intermediate_size": 384, "head_dim": 64, "num_layers": 3},
    "c": {"hidden_size": 192, "intermediate_size": 256, "head_dim": 64},
}
Digests = list[tuple[int, str, float]]


def job_settings(folder: Path, job: str, task: dict[str, Any] | None = None, **changes: Any) -> RunSettings:
    model = folder / f"model-{job}"
    if not model.exists():
        make_tiny_model(model, seed=ord(job), **SHAPES[job])
    plain = {"model": {"path": str(model), "max_context_tokens": 128}, "workers": {"layout": "shared", "environment_processes": 1}}
    return tiny_settings(folder, task or tiny_task("task", seed=ord(job)), **plain | changes)


def make_group(
    folder: Path, device_bytes: int, order: str = "hrrs", host_bytes: int | None = None, names: Sequence[str] = ("group",),
    placement: GroupPlacement | None = None,
) -> WorkerGroups:  # fmt: skip
    """One, or those of these names; anybody starts at the emptiest."""
    (folder / "disk").mkdir(exist_ok=True)
    settings = [
        ConfigureGroup(
            name=name, threads=1, device="cpu", device_bytes=device_bytes, host_bytes=host_bytes,
            host_folder=str(folder / "host"), folder=str(folder / "disk"), disk_bytes=1 << 30 if len(names) == 1 else 0,
        )
        for name in names
    ]  # fmt: skip
    return WorkerGroups(settings, Router(default=names[0]), order, placement=placement)


async def run_job(
    settings: RunSettings,
    directory: RunDirectory,
    make_workers: MakeWorkers = Workers,
    on_start: Callable[[RunDriver], None] | None = None,
) -> Digests:
    path = Path(settings.model.path)
    tokenizers = {"task": Tokenizer.load(path)}
    environments = await start_environments(settings, 1)
    try:
        with EventLog(directory.events) as log:
            compute = OwnCompute(settings, str(path), make_workers=make_workers)
            driver = RunDriver(settings, directory, compute, tokenizers, environments, log)
            if on_start is not None:
                on_start(driver)
            assert await driver.run() == "done"
    finally:
        await environments.close()
    return digests(directory, "task")
