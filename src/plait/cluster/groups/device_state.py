"""What one deployment of a group holds on the device, and moving it off and back, bit for bit.

- Base weights never change: off the device the group's memory keeps them once for all deployments of a base, and each decoder lays
  them out anew.
- Tensors of open tasks and models, gradients that wait included, are put away.
- Stored blocks of key-value cache are put away too, as far as there is room; what is lost is computed again.
- Slots are empty while nothing runs; adapters of rollouts are read again from their files.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from torch import Tensor

from plait.cluster.groups.base_weights import EMBEDDING, BaseWeights, part_of
from plait.cluster.groups.group_memory import GroupMemory
from plait.cluster.rollout_role import RolloutRole
from plait.cluster.worker import Worker
from plait.engine.engine_memory import EngineMemory
from plait.residency.tier import TIERS
from plait.types.errors import CapacityError, PlaitError

GRADIENTS = "gradients/"


class Parkable(Protocol):
    """Tensors on the device that it can do without while nothing runs."""

    @property
    def reserved_bytes(self) -> int:
        """As much as it may come to need there."""
        ...

    @property
    def parked_bytes(self) -> int:
        """Most that it gives up."""
        ...

    def give_up(self) -> dict[str, Tensor]:
        """Those of gradients that wait begin with `GRADIENTS`."""
        ...

    def take_back(self, tensors: Mapping[str, Tensor]) -> None: ...


class DeviceState:
    """Of a worker that is on the device, with the base that is `base` in the memory."""

    def __init__(self, deployment: str, worker: Worker, base: str, memory: GroupMemory) -> None:
        self.deployment, self.worker, self.base, self._memory = deployment, worker, base, memory
        self._engine = EngineMemory(worker.rollout.engine) if isinstance(worker.rollout, RolloutRole) else None
        self._kept: dict[str, Parkable] = {}
        """Whose tensors the memory has, by the name of the group."""
        self.is_resident = True
        embedding = part_of(base, EMBEDDING)
        self._memory.acquire(embedding)
        self._embedding_bytes = memory.group(embedding).num_bytes
        parts = [memory.group(part).num_bytes for part in memory.base_parts(base) if part != embedding]
        self._staging_bytes = max(parts)
        self._static_bytes = sum(decoder.num_bytes for decoder in worker.decoders)
        if self._engine is not None:
            self._static_bytes += self._engine.num_bytes - self._adapter_bytes

    @property
    def _adapter_bytes(self) -> int:
        rollout = self.worker.rollout
        return rollout.engine.adapters.num_bytes if isinstance(rollout, RolloutRole) else 0

    @property
    def num_bytes(self) -> int:
        """On the device while it is there: weights as they are laid out (with room for laying them out), caches, adapters of
        rollouts, and all that training may come to need."""
        training_bytes = sum(trainer.reserved_bytes for trainer in self._trainers().values())
        return self._static_bytes + self._staging_bytes + self._adapter_bytes + training_bytes

    @property
    def parked_bytes(self) -> int:
        """Of its own, most that it leaves behind off the device; caches, which may be lost, are left out."""
        return sum(trainer.parked_bytes for trainer in self._trainers().values())

    @property
    def _room_bytes(self) -> int:
        """What the memory does not count by itself, such as parts of the base while they are laid out."""
        kept_bytes = sum(self._memory.group(name).private_bytes for name in self.kept_groups)
        return max(0, self.num_bytes - self._staging_bytes - self._embedding_bytes - kept_bytes)

    @property
    def held_bytes(self) -> int:
        """Of those, what it has for good as long as it is there."""
        return self.num_bytes - self._staging_bytes

    @property
    def shared_bytes(self) -> int:
        """Of those, what others of its base have too."""
        return self._embedding_bytes

    def fit(self, more_bytes: int = 0) -> None:
        """Take as much room as it needs now, and so much more; CapacityError if there is not enough."""
        self._forget_closed()
        if self.num_bytes + more_bytes > self._memory.device_bytes:
            raise CapacityError(f"{self.num_bytes + more_bytes} bytes do not fit.", "Raise workers.device_bytes.")
        self._memory.take_room(self.deployment, self._room_bytes + more_bytes)

    def is_fitted(self, more_bytes: int = 0) -> bool:
        """Whether `fit` would change nothing."""
        return self._memory.room_bytes(self.deployment) == self._room_bytes + more_bytes

    def drop_idle_versions(self) -> bool:
        """Of rollouts, which are read again from their files; False if there are none."""
        before_bytes, rollout = self._adapter_bytes, self.worker.rollout
        if isinstance(rollout, RolloutRole):
            rollout.engine.adapters.drop_idle()
        return self._adapter_bytes < before_bytes

    # ---- off the device and back

    def park(self) -> None:
        """Nothing of the deployment may be running. PlaitError, and it stays where it is, if something finds no place."""
        self._forget_closed()
        given = {name: trainer.give_up() for name, trainer in self._trainers().items()}
        self._memory.take_room(self.deployment, 0)
        try:
            for name, tensors in given.items():
                self._put_away(name, tensors)
        except PlaitError:
            self._stay(given)
            raise
        self.is_resident = False
        self._memory.release(part_of(self.base, EMBEDDING))
        for decoder in self.worker.decoders:
            decoder.give_up()
        cache = self._engine.give_up() if self._engine is not None else None
        if cache is not None:
            self._memory.put_cache_away(self.deployment, cache, self._staging_bytes)

    def _put_away(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        gradients = {key: tensor for key, tensor in tensors.items() if key.startswith(GRADIENTS)}
        self._kept[name] = self._trainers()[name]
        self._memory.put_away(name, {key: tensor for key, tensor in tensors.items() if key not in gradients})
        self._memory.put_away(_gradients_of(name), gradients)

    def _stay(self, given: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Trainers take back what they gave, and the memory has none of it; in copies, since others may have come to share it."""
        for name in self.kept_groups:
            self._memory.lose(name)
        self._kept.clear()
        for name, trainer in self._trainers().items():
            trainer.take_back({key: tensor.clone() for key, tensor in given[name].items()})
        self._memory.take_room(self.deployment, self._room_bytes)

    def unpark(self) -> None:
        """PlaitError, and all is as it was, if the device has no room even with everything else away, or something is lost."""
        self._forget_closed()
        self._memory.take_room(self.deployment, self._room_bytes)
        tensors = self._acquire_all()
        try:
            self._lay_out()
        except PlaitError:
            self._leave_again(list(tensors))
            raise
        for name, trainer in self._trainers().items():
            trainer.take_back({key: tensor for group in self._groups_of(name) for key, tensor in tensors[group].items()})
        if self._engine is not None:
            self._engine.take_back(self._memory.take_cache(self.deployment))
        self.is_resident = True

    def _acquire_all(self) -> dict[str, dict[str, Tensor]]:
        """The embedding and what trainers have, by group."""
        found: dict[str, dict[str, Tensor]] = {}
        embedding = part_of(self.base, EMBEDDING)
        try:
            for group in (embedding, *self.kept_groups):
                found[group] = self._memory.acquire(group, writable=group != embedding)
        except PlaitError:
            self._leave_again(list(found))
            raise
        return found

    def _lay_out(self) -> None:
        weights = BaseWeights(self._memory, self.base, self._memory.base_parts(self.base))
        try:
            for decoder in self.worker.decoders:
                decoder.lay_out(weights)
        finally:
            weights.close()

    def _leave_again(self, acquired: Sequence[str]) -> None:
        """It cannot come, after these groups have."""
        for decoder in self.worker.decoders:
            decoder.give_up()
        for group in acquired:
            self._memory.release(group)
        self._memory.take_room(self.deployment, 0)

    def discard_gradients(self, model_id: str) -> None:
        """Of a model, while it is off the device."""
        self._memory.lose(_gradients_of(f"{self.deployment}/model/{model_id}"))

    def close(self) -> None:
        """The deployment is gone."""
        for name in self.kept_groups:
            self._memory.lose(name)
        self._memory.lose_cache(self.deployment)
        if self.is_resident:
            self._memory.release(part_of(self.base, EMBEDDING))
        self._memory.take_room(self.deployment, 0)

    # ---- where it is

    @property
    def tier(self) -> str:
        """The slowest that has some of it."""
        return max((self._memory.tier(name) for name in self.groups), key=TIERS.index).value

    @property
    def groups(self) -> list[str]:
        """Of the memory, that are needed on the device; caches left out."""
        return [*self._memory.base_parts(self.base), *self.kept_groups]

    def _trainers(self) -> dict[str, Parkable]:
        worker = self.worker
        tasks = worker.train.tasks if worker.train is not None else {}
        models = worker.models.models if worker.models is not None else {}
        found = {f"{self.deployment}/task/{name}": task.adapter.trainer for name, task in tasks.items()}
        found |= {f"{self.deployment}/model/{name}": model.adapter.trainer for name, model in models.items()}
        return cast(dict[str, Parkable], found)

    @property
    def kept_groups(self) -> list[str]:
        """What the memory has of its own."""
        return [group for name in self._kept for group in self._groups_of(name)]

    def _groups_of(self, name: str) -> list[str]:
        return [group for group in (name, _gradients_of(name)) if group in self._memory]

    def _forget_closed(self) -> None:
        """Tasks and models that were closed, or opened anew, since their tensors were put away."""
        trainers = self._trainers()
        for name, trainer in list(self._kept.items()):
            if trainers.get(name) is not trainer:
                for group in self._groups_of(name):
                    self._memory.lose(group)
                del self._kept[name]


def _gradients_of(name: str) -> str:
    return f"{name}/gradients"
