"""A training worker in simulated time: the service's own slice queue decides whose micro-batch goes next."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import simpy

from plait.simulation.costs import CostModel
from plait.training.tenant_slices import TenantSlices


@dataclass(slots=True)
class _Update:
    costs: CostModel
    slice_tokens: list[int]
    on_done: Callable[[float], None]
    first_s: float | None = None
    """When its first slice began."""


class SimulatedTrainer:
    """`on_busy` is told of each slice: (name of the trainer, start, end, name of the update)."""

    def __init__(
        self, env: simpy.Environment, name: str, micro_batch_tokens: int,
        on_busy: Callable[[str, float, float, str], None] | None = None,
    ) -> None:  # fmt: skip
        self.env, self.name, self._micro_batch_tokens, self._on_busy = env, name, micro_batch_tokens, on_busy
        self._queue = TenantSlices()
        self._updates: dict[str, _Update] = {}
        self._is_busy = False

    def submit(self, name: str, tenant: str, num_tokens: int, costs: CostModel, on_done: Callable[[float], None]) -> None:
        """One optimizer step over so many tokens; its last slice has the optimizer and the publish too.

        `on_done` is told when its first slice began.
        """
        num_slices = max(1, math.ceil(num_tokens / self._micro_batch_tokens))
        share, rest = divmod(num_tokens, num_slices)
        self._updates[name] = _Update(costs, [share + (i < rest) for i in range(num_slices)], on_done)
        self._queue.add(name, num_slices, tenant)
        if not self._is_busy:
            self._run_slice()

    def _run_slice(self) -> None:
        self._is_busy = bool(len(self._queue))
        if not self._is_busy:
            return
        name = self._queue.next()
        update = self._updates[name]
        duration_s = update.costs.train_s(update.slice_tokens.pop())
        if not update.slice_tokens:
            duration_s += update.costs.optimizer_s() + update.costs.publish_s()
        start_s = self.env.now
        update.first_s = start_s if update.first_s is None else update.first_s
        self.env.timeout(duration_s).callbacks.append(lambda _: self._ran(name, start_s))

    def _ran(self, name: str, start_s: float) -> None:
        if self._on_busy is not None:
            self._on_busy(self.name, start_s, self.env.now, name)
        self._queue.ran(name)
        update = self._updates[name]
        has_ended = not update.slice_tokens
        if has_ended:
            self._queue.remove(name)
            del self._updates[name]
        self._run_slice()
        if has_ended:
            assert update.first_s is not None
            update.on_done(update.first_s)
