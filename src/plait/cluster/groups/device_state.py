"""What one deployment of a group holds on the device, and moving it off and back, bit for bit.

- Base weights never change: off the device the state manager keeps them once for all deployments of a base, and each decoder lays
  them out anew.
- Tensors of open tasks and models, gradients that wait included, and stored blocks of key-value cache are handed to the manager.
- Slots, and adapters of rollouts, are dropped: they are empty, and read from files.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from torch import Tensor

from plait.cluster.groups.group_memory import GroupMemory
from plait.cluster.worker import Worker
from plait.engine.engine_memory import EngineMemory


class Parkable(Protocol):
    """Something with tensors on the device, that can do without them while nothing runs."""

    def give_up(self) -> dict[str, Tensor]: ...

    def take_back(self, tensors: Mapping[str, Tensor]) -> None: ...


class DeviceState:
    """Of a worker that is on the device, with the base that `base` names in `memory`."""

    def __init__(self, deployment: str, worker: Worker, base: str, memory: GroupMemory) -> None:
        self.deployment, self.worker, self._base, self._memory = deployment, worker, base, memory
        self._engine = EngineMemory(worker.rollout.engine) if worker.rollout is not None else None
        self._kept: set[str] = set()
        """Groups that the manager has of this deployment."""
        self.is_resident = True

    @property
    def num_bytes(self) -> int:
        """On the device while it is there: weights as they are laid out, caches, adapters, and all that training may need."""
        if self.is_resident:
            self._num_bytes = self._measure()
        return self._num_bytes

    def _measure(self) -> int:
        engine_bytes = self._engine.num_bytes if self._engine is not None else 0
        trainers = self._trainers().values()
        return sum(d.num_bytes for d in self.worker.decoders) + engine_bytes + sum(t.reserved_bytes for t in trainers)

    def _trainers(self) -> dict:
        worker = self.worker
        tasks = worker.train.tasks if worker.train is not None else {}
        models = worker.models.models if worker.models is not None else {}
        found = {f"task/{name}": task.adapter.trainer for name, task in tasks.items()}
        return found | {f"model/{name}": model.adapter.trainer for name, model in models.items()}
