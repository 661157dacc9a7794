"""A whole run: base models, their workers, and any number of tasks."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from plait.config.base import Settings
from plait.config.store import StoreSettings
from plait.config.task import TaskSettings

ModelName = Annotated[str, Field(pattern=r"^[^\s\"']+$", max_length=200)]


class ModelSettings(Settings):
    name: ModelName | None = None
    """By which tasks and clients name it; absent: its path."""
    path: str = "smollm2-135m-instruct"
    """A name from `plait models list`, a folder, a GGUF file, or a hub id."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of weights and activations. Adapters and their optimizer are always float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """"auto": CUDA if torch sees it, else the CPU."""
    max_context_tokens: Annotated[int, Field(ge=16)] = 1024
    """Longest prompt plus answers of all turns."""
    max_slowdown: Annotated[float, Field(ge=1.0)] | None = None
    """As `workers.max_slowdown`, for this base model alone; absent: as that."""

    @property
    def known_as(self) -> str:
        return self.path if self.name is None else self.name


class DeploymentWorkerSettings(Settings):
    """The processes of one base model."""

    layout: Literal["split", "shared", "multiplexed", "multiplexed_training"] = "split"
    """"split": rollout and training in a process each; "shared": one process does both; "multiplexed": one process does both for
    all base models, one call at a time, with on the device what fits `device_bytes`; several if there are `groups`.
    "multiplexed_training": such groups train, and each base model rolls out in processes of its own."""
    rollout_engines: Annotated[int, Field(ge=1, le=64)] = 1
    """Rollout processes, each with the model and a cache of its own. A generation may go on at another after each chunk."""
    rollout_threads: Annotated[int, Field(ge=1)] = 1
    """Of each rollout process. While the trainers are idle, their threads are added, unless `lend_threads` is off."""
    train_threads: Annotated[int, Field(ge=1)] = 1
    """Of each training process. All threads together not more than there are cores."""
    train_workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Training processes, each with the model. Updates of different tasks run at once, those of one task one after another."""
    train_ranks: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes of each training worker, on one machine, over which tasks with `training = "full"` are sharded (FSDP2). Adapters
    are trained by the first. On CUDA each has a device of its own."""
    rank_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """A rank of a training worker for which another has waited so long counts as hung, and all of them are replaced."""
    lend_threads: bool = True
    """Threads of trainers that are all idle decode meanwhile."""
    executor: Literal["process", "thread", "ray"] = "process"
    """Where workers run: "process": in child processes; "thread": in the controller's own, for notebooks and debugging; "ray": as
    actors of a Ray cluster. Threads are lent only between child processes."""
    ray_address: Annotated[str, Field(min_length=1)] = "auto"
    """Of the Ray cluster, as "host:port". "auto": the one that this machine is a node of; "local": one that is started here."""
    ray_placement: Literal["pack", "spread"] = "pack"
    """"pack": on as few nodes of the Ray cluster as there is room on; "spread": on as many as there are."""
    max_restarts: Annotated[int, Field(ge=0)] = 3
    """How often lost worker processes are replaced within an hour; one more loss fails the run."""

    @property
    def is_multiplexed(self) -> bool:
        return self.layout in ("multiplexed", "multiplexed_training")

    @property
    def rolls_out_apart(self) -> bool:
        """Each base model has processes that only roll out."""
        return self.layout in ("split", "multiplexed_training")


class WorkerSettings(DeploymentWorkerSettings):
    device_bytes: Annotated[int, Field(ge=1)] | None = None
    """What a group of multiplexed workers may take on the device: weights, caches, adapters with their gradients and moments."""
    groups: Annotated[int, Field(ge=1, le=64)] = 1
    """Groups of multiplexed workers, each with a process, a queue, threads and `device_bytes` of its own; a base is at one."""
    placement: Literal["pack", "spread", "spread_backfill", "isolated"] = "spread"
    """At which group a base model runs once the trace of its calls tells a period: "pack" fills groups before it takes another,
    "spread" and "spread_backfill" let demands overlap least, "isolated" shares no group. Until then: at the emptiest."""
    max_slowdown: Annotated[float, Field(ge=1.0)] = 1.2
    """Base models share a group, of several, if a step of each is expected to take at most so many times as long as alone."""
    host_bytes: Annotated[int, Field(ge=1)] | None = None
    """Main memory for what a group of multiplexed workers has off the device; absent: as much as there is."""
    disk_bytes: Annotated[int, Field(ge=0)] = 0
    """Disk for what a group finds no room for in `host_bytes`, in a folder of the run or the server; 0: none."""
    order: Literal["hrrs", "fifo", "round_robin", "least_recently_served", "shortest_first"] = "hrrs"
    """Whose call multiplexed workers run next. "hrrs": the highest ratio of waiting to expected time, setup included."""
    environment_processes: Annotated[int, Field(ge=1)] = 2
    """Processes that run environments and rewards, shared by all tasks."""


class EngineSettings(Settings):
    kind: Literal["plait", "vllm"] = "plait"
    """"vllm": rollouts by vLLM, for GPUs and for models that Plait itself does not run. Needs plait[vllm]."""
    python: str = ""
    """Interpreter of rollout workers, of an environment where vLLM is installed; empty: this one."""
    max_rows: Annotated[int, Field(ge=1)] = 64
    """Most generations decoded at once."""
    slot_tokens: Annotated[int, Field(ge=128)] = 32768
    """Cache of the generations being decoded: rows x padded length never exceeds it."""
    pool_tokens: Annotated[int, Field(ge=128)] = 32768
    """Cache of shared prompts and of generations that wait."""
    cache_tokens: Annotated[int, Field(ge=128)] | None = None
    """Most tokens that the chunks at one engine may come to need together; absent: as slot_tokens."""
    host_tokens: Annotated[int, Field(ge=0)] = 0
    """Cache in main memory, of all engines together: what an engine's own had to give up. All engines of this machine read it; on
    Ray each has its share for itself. 0: none."""
    disk_tokens: Annotated[int, Field(ge=0)] = 0
    """The same on disk, below it. 0: none."""
    store: StoreSettings | None = None
    """Cache that engines on several nodes share, below it; absent: none."""
    full_policies: Annotated[int, Field(ge=1)] = 2
    """Most versions of tasks with `training = "full"` that each rollout process holds; more are loaded from disk in turn."""
    scheduling: Literal["context", "fifo"] = "context"
    """Whose chunk goes next, and where: "context" by expected lengths and by what is cached where, "fifo" by arrival."""
    drafting: Literal["auto", "off"] = "off"
    """"auto": tokens that siblings drew are tried several at once, where that pays. Which tokens are drawn stays the same."""
    draft_paths: Annotated[int, Field(ge=1, le=4)] = 1
    """Most ways to go on that are tried at once for a generation, where at most four are left at an engine and that pays."""
    draft_history: bool = False
    """Try too what a task answered to the same prompt in earlier steps: the newest four answers, a million tokens an engine."""
    chunk_tokens: Annotated[int, Field(ge=1)] = 128
    """A generation goes back to the queue after so many new tokens."""
    batch_invariant: Literal["auto", "require", "off"] = "auto"
    """"auto": on where this machine passes the self-test."""
    adaptive_concurrency: bool = True
    """Find the number of rows of each engine by measured throughput, up to max_rows."""

    @property
    def capacity_tokens(self) -> int:
        """Of one engine's cache, for chunks that run."""
        return self.slot_tokens if self.cache_tokens is None else self.cache_tokens


class TrainingSettings(Settings):
    micro_batch_tokens: Annotated[int, Field(ge=64)] = 2048
    """Most tokens in one forward and backward pass; another task may go between two."""
    checkpoint_layers: bool = False
    """Recompute activations in the backward pass: less memory, more time."""


class FurtherModelSettings(ModelSettings):
    """A base model beside the first. Sections of its own hold as a whole in place of the run's."""

    name: ModelName
    """By which tasks and clients name it."""
    path: str
    """As in `[model]`."""
    workers: DeploymentWorkerSettings | None = None
    """Its processes; absent: as many as `[workers]` says, beside those of the others."""
    engine: EngineSettings | None = None
    """Of its rollout processes; absent: as `[engine]`."""

    @property
    def shape(self) -> ModelSettings:
        """What every base model has."""
        return ModelSettings(**{name: getattr(self, name) for name in ModelSettings.model_fields})

    def own_workers(self, shared: WorkerSettings) -> WorkerSettings:
        own = shared.model_dump() if self.workers is None else self.workers.model_dump()
        return WorkerSettings(**{**own, "environment_processes": shared.environment_processes})


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
    """The base model that tasks train unless they name another."""
    models: tuple[FurtherModelSettings, ...] = ()
    """Further base models, each with workers of its own unless `workers.layout` is "multiplexed"."""
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
        check_model_names([self.model.known_as, *(model.name for model in self.models)])
        return self

    @property
    def model_names(self) -> tuple[str, ...]:
        """Of all base models, the first one's first."""
        return self.model.known_as, *(model.name for model in self.models)

    @property
    def max_lora_rank(self) -> int:
        """Of all tasks that train an adapter; 1 if none does."""
        return max((task.lora.rank for task in self.tasks if task.training == "lora"), default=1)

    @property
    def train_ranks(self) -> int:
        """Of the training workers of the first base model; more than one have nothing to do where no task trains all weights."""
        return self.workers.train_ranks if any(task.training == "full" for task in self.tasks) else 1

    @property
    def used_models(self) -> tuple[str, ...]:
        """Those that tasks train: only they are loaded."""
        used = {self.model_of(task) for task in self.tasks}
        return tuple(name for name in self.model_names if name in used)

    def model_of(self, task: TaskSettings) -> str:
        """The name of the base model that it trains."""
        return self.model.known_as if task.model is None else task.model

    def of_model(self, name: str) -> "RunSettings":
        """The part of the run that is on this base model, with the workers and the engine of its own."""
        tasks = tuple(task for task in self.tasks if self.model_of(task) == name)
        changes: dict[str, object] = {"models": (), "tasks": tasks}
        for model in self.models:
            if model.name == name:
                engine = self.engine if model.engine is None else model.engine
                changes |= {"model": model.shape, "workers": model.own_workers(self.workers), "engine": engine}
        return self.model_copy(update=changes)


def check_model_names(names: Sequence[str]) -> None:
    """Raises ValueError if two base models have the same name."""
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"base models share the name {repeated[0]!r}: give each its own")
