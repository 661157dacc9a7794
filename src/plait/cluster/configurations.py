"""What each worker of a run or a service is told first, from the settings."""

from typing import Protocol

from plait.cluster.messages import ROLLOUT, TRAIN, Configure
from plait.config.checks import Deployable


class ComputeSettings(Deployable, Protocol):
    @property
    def max_lora_rank(self) -> int: ...
    @property
    def train_ranks(self) -> int: ...


def configurations(settings: ComputeSettings, model_path: str, num_tasks: int) -> list[Configure]:
    """What each worker process is told first. `num_tasks`: whose adapters are expected in memory at one time."""
    workers = settings.workers
    if workers.layout == "shared":
        threads = max(workers.rollout_threads, workers.train_threads)
        return [_configure(settings, model_path, num_tasks, "worker", (ROLLOUT, TRAIN), threads)]
    return [
        *(
            _configure(settings, model_path, num_tasks, name, (ROLLOUT,), workers.rollout_threads)
            for name in engine_names(workers.rollout_engines)
        ),
        *(
            _configure(settings, model_path, num_tasks, name, (TRAIN,), workers.train_threads)
            for name in trainer_names(workers.train_workers)
        ),
    ]


def engine_names(num_engines: int) -> list[str]:
    """Of rollout processes."""
    return ["rollout"] if num_engines == 1 else [f"rollout-{number}" for number in range(num_engines)]


def trainer_names(num_trainers: int) -> list[str]:
    """Of training processes."""
    return ["train"] if num_trainers == 1 else [f"train-{number}" for number in range(num_trainers)]


def _configure(
    settings: ComputeSettings, model_path: str, num_tasks: int, name: str, roles: tuple[str, ...], threads: int
) -> Configure:
    model, engine = settings.model, settings.engine
    return Configure(
        name=name, roles=roles, deployment=model.known_as, model_path=model_path, dtype=model.dtype,
        device=model.device, threads=threads, max_context_tokens=model.max_context_tokens, max_rows=engine.max_rows,
        slot_tokens=engine.slot_tokens, pool_tokens=engine.pool_tokens, batch_invariant=engine.batch_invariant,
        micro_batch_tokens=settings.training.micro_batch_tokens, checkpoint_layers=settings.training.checkpoint_layers,
        num_tasks=num_tasks, train_ranks=settings.train_ranks if TRAIN in roles else 1,
        rank_timeout_s=settings.workers.rank_timeout_s, drafting=engine.drafting, draft_paths=engine.draft_paths,
        draft_history=engine.draft_history,
        has_siblings=settings.workers.rollout_engines > 1,
        lend_threads=settings.workers.lend_threads and settings.workers.executor == "process",
        full_policies=engine.full_policies,
        engine_kind=engine.kind, max_lora_rank=settings.max_lora_rank, python=engine.python if ROLLOUT in roles else "",
    )  # fmt: skip
