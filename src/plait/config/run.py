"""A whole run: one base model, its workers, and any number of tasks."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from plait.config.base import Settings
from plait.config.task import TaskSettings


class ModelSettings(Settings):
    path: str = "smollm2-135m-instruct"
    """A name from `plait models list`, a folder, a GGUF file, or a hub id."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of weights and activations. Adapters and their optimizer are always float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """"auto": CUDA if torch sees it, else the CPU."""
    max_context_tokens: Annotated[int, Field(ge=16)] = 1024
    """Longest prompt plus answers of all turns."""


class WorkerSettings(Settings):
    layout: Literal["split", "shared"] = "split"
    """"split": rollout and training in a process each; "shared": one process does both."""
    rollout_threads: Annotated[int, Field(ge=1)] = 1
    """Of the rollout process. While the trainer is idle, its threads are added, unless `lend_threads` is off."""
    train_threads: Annotated[int, Field(ge=1)] = 1
    """Of the training process. Together with rollout_threads not more than there are cores."""
    lend_threads: bool = True
    """An idle trainer's threads decode meanwhile."""
    environment_processes: Annotated[int, Field(ge=1)] = 2
    """Processes that run environments and rewards, shared by all tasks."""
    max_restarts: Annotated[int, Field(ge=0)] = 3
    """How often lost worker processes are replaced within an hour; one more loss fails the run."""


class EngineSettings(Settings):
    max_rows: Annotated[int, Field(ge=1)] = 64
    """Most generations decoded at once."""
    slot_tokens: Annotated[int, Field(ge=128)] = 32768
    """Cache of the generations being decoded: rows x padded length never exceeds it."""
    pool_tokens: Annotated[int, Field(ge=128)] = 32768
    """Cache of shared prompts and of generations that wait."""
    chunk_tokens: Annotated[int, Field(ge=1)] = 128
    """A generation goes back to the queue after so many new tokens."""
    batch_invariant: Literal["auto", "require", "off"] = "auto"
    """"auto": on where this machine passes the self-test."""
    adaptive_concurrency: bool = True
    """Find the number of rows by measured throughput, up to max_rows."""


class TrainingSettings(Settings):
    micro_batch_tokens: Annotated[int, Field(ge=64)] = 2048
    """Most tokens in one forward and backward pass; another task may go between two."""
    checkpoint_layers: bool = False
    """Recompute activations in the backward pass: less memory, more time."""


class StateSettings(Settings):
    keep_every_steps: Annotated[int, Field(ge=1)] = 10
    """Besides the last two, the record of every so many steps is kept."""


class TrackingSettings(Settings):
    tensorboard: bool = False
    """Write TensorBoard files to `RUN/tracking`."""
    wandb: bool = False
    """Offline unless WANDB_MODE says otherwise."""


class RunSettings(Settings):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] = "run"
    """Folder of the run under `runs/`. A name that is taken gets `-2`, `-3`, ..."""
    seed: int = 0
    """Part of the seed of every sampled token."""
    model: ModelSettings = ModelSettings()
    workers: WorkerSettings = WorkerSettings()
    engine: EngineSettings = EngineSettings()
    training: TrainingSettings = TrainingSettings()
    state: StateSettings = StateSettings()
    tracking: TrackingSettings = TrackingSettings()
    tasks: Annotated[tuple[TaskSettings, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_differ(self) -> "RunSettings":
        names = [task.name for task in self.tasks]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"tasks share the name {repeated[0]!r}: give each its own")
        return self
