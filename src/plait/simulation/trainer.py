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
    on_done: Callable[[], None]


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

    def submit(self, name: str, tenant: str, num_tokens: int, costs: CostModel, on_done: Callable[[], None]) -> None:
        """One optimizer step over so many tokens; its last slice has the optimizer and the publish too."""
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
        self.env.timeout(duration_s).callbacks.append(lambda _: self._ran(name, start_s))

    def _ran(self, name: str, start_s: float) -> None:
        if self._on_busy is not None:
            self._on_busy(self.name, start_s, self.env.now, name)
        self._queue.ran(name)
        ended = None if self._updates[name].slice_tokens else self._updates.pop(name)
        if ended is not None:
            self._queue.remove(name)
        self._run_slice()
        if ended is not None:
            ended.on_done()
