"""An engine in a process of its own, for `benchmarks.seer`: requests end at forced lengths, which whoever schedules is not told.

Messages go over a pipe, as tuples whose first item says what they are. The model stays loaded from one system to the next.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec.structs import replace as replaced

from benchmarks.seer_preempting import PreemptingEngine, Size
from plait.drafting.local_drafter import LocalDrafter
from plait.drafting.planner import DraftPlanner
from plait.engine.adapters import AdapterStore
from plait.engine.engine import Engine
from plait.engine.group_drafter import GroupDrafter
from plait.engine.sampler import Sampler
from plait.engine.speculation import Speculation
from plait.engine.step_times import measure_step_times, token_step_of
from plait.kv.host_tier import HostTier
from plait.kv.tiers import LowerTiers
from plait.models.decoder import Decoder
from plait.types.chunks import Chunk


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One system's engine."""

    size: Size
    lengths: Mapping[int, int]
    """Seed of a request -> tokens that it draws; where a seed is missing, it ends as it likes."""
    preempts: bool = False
    drafts: bool = False
    host_paths: tuple[str, ...] = ()
    """Shared memory of the engines, its own first."""


def main(connection: Connection, model_path: str, dtype: str) -> None:
    import torch

    from plait.models.invariance import self_test
    from plait.models.weights import load_model

    torch.set_num_threads(1)
    config, weights = load_model(Path(model_path), getattr(torch, dtype), "cpu")
    granted = self_test(config, weights).granted
    decoder = Decoder(config, weights, prepack=True)
    profile: dict[tuple[int, int], float] = {}
    connection.send(("ready", granted))
    while (message := connection.recv())[0] != "end":
        if message[0] != "begin":
            continue  # It was sent before its sender knew that the system had stopped.
        spec: EngineSpec = message[1]
        if spec.drafts and not profile:
            profile.update(measure_step_times(decoder, time.perf_counter, spec.size.max_rows))
        EngineLoop(connection, spec, decoder, Sampler(use_gumbel=not granted), profile).run()
    os._exit(0)  # Nothing is left to be put away, and torch takes its time.


class EngineLoop:
    """Serves one system, from "begin" to "stop"."""

    def __init__(
        self, connection: Connection, spec: EngineSpec, decoder: Decoder, sampler: Sampler, profile: Mapping[tuple[int, int], float]
    ) -> None:
        self.connection, self.spec = connection, spec
        self.drafter = (
            GroupDrafter(LocalDrafter(), DraftPlanner(profile, token_step=token_step_of(decoder))) if spec.drafts else None
        )
        speculation = Speculation(self.drafter, time.perf_counter) if self.drafter is not None else None
        kind = PreemptingEngine if spec.preempts else Engine
        size = spec.size
        self.engine = kind(
            decoder, AdapterStore(_no_adapter, 1), "benchmark", max_rows=size.max_rows,
            slot_tokens=size.max_rows * size.context_tokens,
            pool_tokens=size.pool_tokens, max_context_tokens=size.context_tokens, sampler=sampler, speculation=speculation,
        )  # fmt: skip
        if isinstance(self.engine, PreemptingEngine):
            self.engine.cache_tokens = size.cache_tokens
        if spec.host_paths:
            host = HostTier.attach(spec.host_paths[0], spec.host_paths[1:], self.engine.kv.codec.payload_bytes)
            self.engine.kv.attach(LowerTiers(host, None, self.engine.pool.block_tokens))
        self.busy_s = self.cpu_s = 0.0

    def run(self) -> None:
        self.connection.send(("begun",))
        while True:
            while self.engine.is_idle or self.connection.poll():
                message = self.connection.recv()
                if message[0] == "stop":
                    return self._stop()
                self._handle(message)
            self._step()

    def _handle(self, message: tuple[Any, ...]) -> None:
        match message:
            case ("submit", chunks):
                for chunk in chunks:
                    self.engine.submit(self._forced(chunk))
            case ("cancel", request_ids):
                for request_id in request_ids:
                    self.engine.cancel(request_id)
            case ("release", handles):
                for handle in handles:
                    self.engine.release(handle)
            case ("end_stretches",):
                self.engine.end_stretches()
            case ("siblings", increments) if self.drafter is not None:
                self.drafter.take_in(increments)

    def _forced(self, chunk: Chunk) -> Chunk:
        length = self.spec.lengths.get(chunk.sampling.seed)
        return chunk if length is None else replaced(chunk, sampling=replaced(chunk.sampling, max_new_tokens=length))

    def _step(self) -> None:
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        results = self.engine.step()
        self.busy_s += time.perf_counter() - start_s
        self.cpu_s += time.process_time() - start_cpu_s
        if results:
            self.connection.send(("results", results))
        if self.drafter is not None and (updates := self.drafter.updates()):
            self.connection.send(("updates", updates))

    def _stop(self) -> None:
        counters = self.engine.kv.counters
        told = self.engine.speculation
        self.connection.send(("stopped", {
            "busy_s": self.busy_s, "cpu_s": self.cpu_s, "prefilled_tokens": self.engine.num_prefilled_tokens,
            "preemptions": getattr(self.engine, "num_preemptions", 0), "kv": asdict(counters),
            "proposed": told.num_proposed if told else 0, "accepted": told.num_accepted if told else 0,
            "row_steps": told.num_rows if told else 0,
        }))  # fmt: skip
        if self.engine.kv.lower is not None:
            self.engine.kv.lower.close()


def _no_adapter(ref: Any) -> Any:
    raise AssertionError("requests have no adapters here")


def own_first(paths: tuple[str, ...], index: int) -> tuple[str, ...]:
    return (paths[index], *paths[:index], *paths[index + 1 :])


def for_engine(spec: EngineSpec, index: int) -> EngineSpec:
    return replace(spec, host_paths=own_first(spec.host_paths, index)) if spec.host_paths else spec
