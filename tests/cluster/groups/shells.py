"""Deployments without models in them: a few tensors that are trained, weights that are laid out, and nothing that computes."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from plait.cluster.groups.device_room import DeviceRoom
from plait.cluster.groups.device_state import DeviceState
from plait.cluster.groups.group_memory import GroupMemory
from plait.cluster.groups.staging import Staged
from plait.residency.tier import TIERS, Tier
from tests.cluster.groups.hosts import group_settings

VALUES = 1200
"""Of each tensor."""
NUM_PARTS = 3


class ShellDecoder:
    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.lay_out(weights)

    def lay_out(self, weights: Mapping[str, Tensor]) -> None:
        self.laid_out = {name: weights[name] if name == "embed_tokens" else weights[name].clone() for name in weights}

    def give_up(self) -> None:
        self.laid_out = {}

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.laid_out.values())


class ShellTrainer:
    """`value` is in every tensor; a step changes them in place."""

    def __init__(self, value: int) -> None:
        self.tensors = {f"{kind}/w": torch.full((VALUES,), float(value)) for kind in ("parameters", "moments")}

    @property
    def reserved_bytes(self) -> int:
        return self.parked_bytes

    @property
    def parked_bytes(self) -> int:
        return 3 * 4 * VALUES

    def step(self) -> None:
        self.tensors.setdefault("gradients/w", torch.zeros(VALUES))
        for tensor in self.tensors.values():
            tensor += 1

    def give_up(self) -> dict[str, Tensor]:
        given, self.tensors = self.tensors, {}
        return given

    def take_back(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)


def base_weights(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    names = ("embed_tokens", *(f"layers.{number}.w" for number in range(NUM_PARTS - 1)))
    return {name: torch.randn(VALUES, generator=generator) for name in names}


class ShellRoom:
    """Of deployments `names`, with what each is to have in `steps`."""

    def __init__(self, folder: Path, names: str, **budgets: Any) -> None:
        self.settled: list[Staged] = []
        self.memory = GroupMemory(group_settings(folder, **budgets), torch.device("cpu"))
        self.room = DeviceRoom(self.memory, self.settled.append)
        self.trainers: dict[str, ShellTrainer] = {}
        self.steps = dict.fromkeys(names, 0)
        for number, name in enumerate(names):
            self._add(name, number)

    def _add(self, name: str, number: int) -> None:
        for other in self.room.resident_states:
            assert self.room.park(other)
        base, weights = f"base {number % 2}", base_weights(number % 2)
        self.memory.hold_base(base, weights)
        self.trainers[name] = ShellTrainer(number)
        models = {"m": SimpleNamespace(adapter=SimpleNamespace(trainer=self.trainers[name]))}
        worker: Any = SimpleNamespace(
            rollout=None, train=None, models=SimpleNamespace(models=models), decoders=[ShellDecoder(weights)], has_work=False
        )
        state = DeviceState(name, worker, base, self.memory)
        state.fit()
        self.room.states[name] = state

    def step(self, name: str) -> None:
        assert self.room.states[name].is_resident
        self.trainers[name].step()
        self.steps[name] += 1

    # ---- whether all is well

    def check(self) -> None:
        """With nothing under way: every byte is counted once, what is in use is there, and there is nothing else."""
        self.room.settle()
        self.memory.flush()
        memory, ledger = self.memory, self.memory._ledger
        assert not ledger.num_reservations
        assert not memory._mover._moving
        assert memory._num_beside == 0
        assert all(memory._acquired.values())
        buffers = {key: buffer.numel() for key, buffer in memory._stores.device._buffers.items()}
        rooms = {room: size for owned in memory._rooms.values() for room, size in owned.items()}
        assert ledger._present[Tier.DEVICE] == buffers | rooms
        for tier in TIERS:
            assert ledger.used_bytes(tier) == sum(ledger._present[tier].values())
            budget = ledger.budgets[tier]
            assert budget is None or ledger.used_bytes(tier) <= budget
            assert all(not ledger.is_garbage(tier, key) for key in ledger._present[tier])
        self._check_pins(set(rooms))

    def _check_pins(self, rooms: set[str]) -> None:
        expected = rooms | {
            group for state in self.room.resident_states for group in (f"{state.base}/embed_tokens", *state.kept_groups)
        }
        for tier in TIERS:
            assert (+self.memory._ledger._pins[tier]).keys() == (expected if tier is Tier.DEVICE else set()), tier

    def check_contents(self) -> None:
        """Each in turn on the device has what it is to have."""
        for number, name in enumerate(self.steps):
            assert self.room.switch((), name).problem is None
            values = {key: set(tensor.tolist()) for key, tensor in self.trainers[name].tensors.items()}
            expected = {"parameters/w": {float(number + self.steps[name])}, "moments/w": {float(number + self.steps[name])}}
            gradients = {"gradients/w": {float(self.steps[name])}} if self.steps[name] else {}
            assert values == expected | gradients, name
            laid_out = self.room.states[name].worker.decoders[0].laid_out  # type: ignore[attr-defined]
            assert all(torch.equal(laid_out[key], tensor) for key, tensor in base_weights(number % 2).items())
            self.check()
