"""Where a run is computed, as its driver sees it: workers of its own, or a service's that it shares with others.

Tasks go by their names in the run here; what they are called at the workers is the business of the compute.
"""

from collections.abc import Sequence
from typing import Protocol

from plait.cluster.messages import Busy, CloseTask, JobFailed, OpenTask, Ready, Starting, TaskOpened, Update, UpdateDone
from plait.observe.events import EngineSample
from plait.rollout.request import GenerationRequest
from plait.types.errors import WorkerFailure
from plait.types.trajectory import Segment

ToTrainer = OpenTask | Update | CloseTask
TaskMessage = TaskOpened | UpdateDone | JobFailed | Busy
"""Says what task it is of."""
ToRun = TaskMessage | Starting


class ComputeListener(Protocol):
    """Called in the event loop."""

    def on_message(self, worker: str, message: ToRun) -> None: ...

    def on_engine(self, sample: EngineSample) -> None: ...

    def on_worker_lost(self, worker: str, failure: WorkerFailure) -> None: ...

    def on_reopen(self, tasks: Sequence[str]) -> None:
        """What a trainer had of these tasks was lost: those that go on have to be opened again."""
        ...

    def on_failed(self, error: Exception) -> None:
        """There will be no more workers."""
        ...


class Generator(Protocol):
    async def generate(self, request: GenerationRequest) -> Segment: ...

    def release(self, handles: Sequence[str]) -> None: ...


class Compute(Protocol):
    def rollout_of(self, task: str) -> Generator: ...

    @property
    def worker_names(self) -> tuple[str, ...]:
        """Those whose use the run's log tells."""
        ...

    async def start(self, listener: ComputeListener) -> Ready: ...

    async def close(self) -> None: ...

    def train(self, message: ToTrainer) -> None: ...
