"""Weights & Biases, offline unless WANDB_MODE says otherwise; `wandb sync FOLDER/wandb/offline-run-*` uploads later."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from plait.observe.events import RunStarted


class WandbTracker:
    """One W&B run for the whole run, however often it is resumed.

    Offline, its folder is written anew with the log's history. Online, what the server has is not sent again.
    """

    def __init__(self, folder: Path, start: RunStarted) -> None:
        folder.mkdir(parents=True, exist_ok=True)  # W&B would quietly write elsewhere.
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        run_id = hashlib.blake2b(f"{start.run}\x1f{start.time_s}".encode(), digest_size=8).hexdigest()
        if mode == "offline":
            for old in (folder / "wandb").glob(f"offline-run-*-{run_id}"):
                shutil.rmtree(old)
        settings = wandb.Settings(
            silent=True, console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True, disable_code=True
        )
        self._run = wandb.init(
            mode=mode,
            id=run_id,
            resume=None if mode == "offline" else "allow",
            dir=str(folder),
            project=os.environ.get("WANDB_PROJECT", "plait"),
            name=start.run,
            config={"model": start.model, "device": start.device, "dtype": start.dtype},
            settings=settings,
        )
        self._tasks: set[str] = set()

    def record(self, task: str, step: int, time_s: float, values: Mapping[str, float]) -> None:
        axis = f"{task}/version" if set(values) == {"accuracy"} else f"{task}/step"
        if task not in self._tasks:
            self._define(task)
        known = self._run.summary.get(axis)
        if known is None or step > known:
            self._run.log({axis: step} | {f"{task}/{name}": value for name, value in values.items()})

    def _define(self, task: str) -> None:
        """Axes are named first, each by itself: else the pattern takes them for curves, and W&B adds a step to every evaluation."""
        self._tasks.add(task)
        self._run.define_metric(f"{task}/step")
        self._run.define_metric(f"{task}/version")
        self._run.define_metric(f"{task}/accuracy", step_metric=f"{task}/version")
        self._run.define_metric(f"{task}/*", step_metric=f"{task}/step")

    def close(self) -> None:
        self._run.finish()  # W&B's own process may still be writing; it is waited for when Python exits.
