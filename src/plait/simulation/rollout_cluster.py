"""Devices of one accelerator that roll out and train one base model, and a system arranged on them."""

from collections.abc import Callable

import msgspec
import simpy

from plait.simulation.costs import Efficiency, RooflineCosts
from plait.simulation.engine import Busy
from plait.simulation.hardware import Accelerator
from plait.simulation.model_shapes import ModelShape
from plait.simulation.rollout import SimulatedRollout
from plait.simulation.systems import System
from plait.simulation.tasks import OnPhase, OnRequest, SimulatedTasks
from plait.simulation.trainer import SimulatedTrainer
from plait.types.errors import ConfigError

TRAINER = "trainer"


class RolloutCluster(msgspec.Struct, frozen=True, kw_only=True):
    """`train_devices` of the devices train, the others roll out; where a system shares them all do both, in turn."""

    accelerator: Accelerator
    model: ModelShape
    num_devices: int
    train_devices: int = 0
    """0: this cluster only rolls out, or its systems share all devices."""
    devices_per_engine: int = 1
    max_rows: int = 256
    """Of an engine."""
    chunk_tokens: int = 8192
    micro_batch_tokens: int = 65_536
    cache_tokens: int = 0
    """Of an engine; 0: what `memory_share` leaves beside the weights."""
    memory_share: float = 0.9
    pool_tokens: int | None = None
    """Of the global pool below the engines; None: ample."""
    trained_share: float = 1.0
    """Of the parameters; 1: all, in full."""
    efficiency: Efficiency = Efficiency()
    adapts_rows: bool = False

    def num_engines(self, is_shared: bool) -> int:
        return (self.num_devices - (0 if is_shared else self.train_devices)) // self.devices_per_engine

    def num_train_devices(self, is_shared: bool) -> int:
        return self.num_devices if is_shared else self.train_devices or self.num_devices

    @property
    def engine_cache_tokens(self) -> int:
        """ConfigError if the weights leave no room."""
        if self.cache_tokens:
            return self.cache_tokens
        num_bytes = self.accelerator.memory_bytes * self.devices_per_engine * self.memory_share - self.model.weight_bytes
        if num_bytes < 1024 * self.model.kv_bytes_per_token:
            raise ConfigError(
                f"{self.model.name} does not fit {self.devices_per_engine} x {self.accelerator.name}.",
                "Give devices_per_engine more.",
            )
        return int(num_bytes / self.model.kv_bytes_per_token)

    def costs(self, num_devices: int) -> RooflineCosts:
        return RooflineCosts(self.accelerator, self.model, num_devices, self.trained_share, self.efficiency)

    def devices_of(self, name: str, is_shared: bool) -> int:
        """That an engine or the trainer has, by the name that `on_busy` is told."""
        return self.num_train_devices(is_shared) if name == TRAINER else self.devices_per_engine


def arrange(
    env: simpy.Environment, system: System, cluster: RolloutCluster, seed: int, on_busy: Busy | None = None,
    on_train: Callable[[str, float, float, str], None] | None = None, on_step: Callable[[str, int, float], None] | None = None,
    on_phase: OnPhase | None = None, on_request: OnRequest | None = None,
) -> SimulatedTasks:  # fmt: skip
    """The system on the cluster; `add` tasks, then run the environment."""
    names = [f"engine-{i}" for i in range(cluster.num_engines(system.is_shared))]
    costs = cluster.costs(cluster.devices_per_engine)
    rollout = SimulatedRollout(
        env, system.make_scheduler(names), dict.fromkeys(names, costs), cluster.engine_cache_tokens, cluster.max_rows,
        cluster.chunk_tokens, on_busy, kind=system.kind, adapts_rows=cluster.adapts_rows, is_staged=system.is_staged,
        pool_tokens=cluster.pool_tokens,
    )  # fmt: skip
    trainer = SimulatedTrainer(env, TRAINER, cluster.micro_batch_tokens, on_train)
    train_costs = cluster.costs(cluster.num_train_devices(system.is_shared))
    return SimulatedTasks(
        env, rollout, trainer, train_costs, seed, on_step, policy=system.policy(), knows_lengths=system.knows_lengths,
        over_issue=system.over_issue, on_phase=on_phase, on_request=on_request,
    )  # fmt: skip
