"""A run on several base models: to each task the compute of its own.

Workers and engines of all but the first base model are told of as `MODEL/WORKER`.
"""

from collections.abc import Mapping, Sequence

import msgspec

from plait.cluster.all_of import all_of
from plait.cluster.messages import OpenTask, Ready
from plait.observe.events import EngineSample
from plait.tasks.compute import Compute, ComputeListener, Generator, ToRun, ToTrainer
from plait.types.errors import WorkerFailure


class BasesCompute:
    """`computes` by base model, the first one's first; `models` tells the base model of each task."""

    def __init__(self, computes: Mapping[str, Compute], models: Mapping[str, str]) -> None:
        self._computes, self._models = computes, models
        self._prefixes = {model: f"{model}/" if number else "" for number, model in enumerate(computes)}

    def compute_of(self, task: str) -> Compute:
        return self._computes[self._models[task]]

    def rollout_of(self, task: str) -> Generator:
        return self.compute_of(task).rollout_of(task)

    @property
    def worker_names(self) -> tuple[str, ...]:
        return tuple(self._prefixes[model] + name for model, one in self._computes.items() for name in one.worker_names)

    async def start(self, listener: ComputeListener) -> Ready:
        """All at once. What the first reports stands for all, except that all have to be batch invariant."""
        starts = [one.start(_Renaming(listener, self._prefixes[model])) for model, one in self._computes.items()]
        ready = dict(zip(self._computes, await all_of(starts), strict=True))
        failing = {model: one.invariance_detail for model, one in ready.items() if not one.batch_invariant}
        first = next(iter(ready.values()))
        if not failing:
            return first
        detail = "; ".join(f"{model}: {text}" for model, text in failing.items())
        return msgspec.structs.replace(first, batch_invariant=False, invariance_detail=detail)

    async def close(self) -> None:
        await all_of([one.close() for one in self._computes.values()])

    def train(self, message: ToTrainer) -> None:
        self.compute_of(message.key if isinstance(message, OpenTask) else message.task).train(message)


class _Renaming:
    """The listener of one base model's compute."""

    def __init__(self, listener: ComputeListener, prefix: str) -> None:
        self._listener, self._prefix = listener, prefix

    def on_message(self, worker: str, message: ToRun) -> None:
        self._listener.on_message(self._prefix + worker, message)

    def on_engine(self, sample: EngineSample) -> None:
        self._listener.on_engine(msgspec.structs.replace(sample, engine=self._prefix + sample.engine))

    def on_worker_lost(self, worker: str, failure: WorkerFailure) -> None:
        self._listener.on_worker_lost(self._prefix + worker, failure)

    def on_reopen(self, tasks: Sequence[str]) -> None:
        self._listener.on_reopen(tasks)

    def on_failed(self, error: Exception) -> None:
        self._listener.on_failed(error)
