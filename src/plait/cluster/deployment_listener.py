"""Who hears of what becomes of a deployment, in the event loop."""

from collections.abc import Sequence
from typing import Protocol

from plait.cluster.messages import FromWorker
from plait.observe.events import EngineSample
from plait.types.errors import WorkerFailure


class DeploymentListener(Protocol):
    def on_message(self, worker: str, message: FromWorker) -> None:
        """Neither chunks nor scored prompts, which go to who waits for them."""
        ...

    def on_engine(self, sample: EngineSample) -> None:
        """Worth an event."""
        ...

    def on_worker_lost(self, worker: str, roles: Sequence[str], failure: WorkerFailure) -> None: ...

    def on_adapters_lost(self, owners: Sequence[str], num_trainers: int) -> None:
        """A trainer was lost, and with it what it had of these tasks and models; so many trainers are left."""
        ...

    def on_reopen(self, owners: Sequence[str]) -> None:
        """Of these tasks and models, which were lost, those that are still wanted can be opened again."""
        ...

    def on_trainer_ready(self) -> None:
        """A lost trainer was replaced."""
        ...

    def on_failed(self, error: Exception) -> None:
        """There will be no more workers, or a handler raised `error`."""
        ...
