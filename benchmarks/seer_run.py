"""One system serves one workload on engines in processes of their own."""

import asyncio
import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks.seer_engine import EngineSpec, Size, for_engine, main
from benchmarks.seer_systems import System
from benchmarks.seer_workload import Request, Workload
from plait.drafting.hub import DraftHub
from plait.kv.shared_memory import SharedMemory
from plait.rollout.request import GenerationRequest
from plait.rollout.service import RolloutService
from plait.types.chunks import Chunk
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams


class EngineProcess:
    """Also the rollout service's link to it."""

    def __init__(self, name: str, model: Path, dtype: str) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"  # Taken over by the child.
        context = get_context("spawn")
        self.name = name
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=main, args=(theirs, str(model), dtype), daemon=True)
        self._process.start()

    def wait_until_ready(self) -> bool:
        """Whether its model is batch-invariant."""
        return bool(self._connection.recv()[1])

    def begin(self, spec: EngineSpec) -> None:
        self.send("begin", spec)
        self._connection.recv()

    def listen(self, loop: asyncio.AbstractEventLoop, on_message: "Any") -> Thread:
        """Messages until "stopped", which is the last, are handed to the loop."""

        def read() -> None:
            while True:
                message = self._connection.recv()
                loop.call_soon_threadsafe(on_message, self, message)
                if message[0] == "stopped":
                    return

        thread = Thread(target=read, daemon=True)
        thread.start()
        return thread

    def send(self, *message: Any) -> None:
        self._connection.send(message)

    def submit(self, chunks: Sequence[Chunk]) -> None:
        self.send("submit", list(chunks))

    def cancel(self, request_ids: Sequence[str]) -> None:
        self.send("cancel", list(request_ids))

    def release(self, handles: Sequence[str], went_on: bool = False) -> None:
        self.send("release", list(handles))

    def end_stretches(self) -> None:
        self.send("end_stretches")

    def close(self) -> None:
        self.send("end")
        self._process.join(10)


@dataclass(slots=True)
class Outcome:
    """Times in seconds; `end_of` has the requests that count."""

    wall_s: float
    end_of: dict[str, float]
    num_tokens: int
    digests: dict[str, str]
    engines: list[dict[str, Any]]
    num_moves: int

    @property
    def last_tenth_s(self) -> float:
        ends_s = sorted(self.end_of.values())
        return ends_s[-1] - ends_s[int(0.9 * len(ends_s)) - 1]

    @property
    def idle_share(self) -> float:
        return 1 - sum(engine["busy_s"] for engine in self.engines) / (len(self.engines) * self.wall_s)


@dataclass(frozen=True, slots=True)
class Ended:
    """A request; seconds since the start."""

    request_id: str
    end_s: float
    num_tokens: int
    digest: str
    """Of tokens and log-probabilities."""


@dataclass
class Rollout:
    """`size` is each engine's."""

    system: System
    workload: Workload
    engines: Sequence[EngineProcess]
    size: Size
    chunk_tokens: int
    segment_bytes: int
    temperature: float = 1.0
    stop_token_ids: tuple[int, ...] = ()
    is_forced: bool = True
    hub: DraftHub = field(default_factory=DraftHub)

    def run(self) -> Outcome:
        memories = [] if self.system.preempts else [SharedMemory(self.segment_bytes) for _ in self.engines]
        paths = tuple(memory.path for memory in memories)
        lengths = {request.seed: request.length for request in self.workload.requests} if self.is_forced else {}
        spec = EngineSpec(self.size, lengths, self.system.preempts, self.system.drafts, paths)
        for index, engine in enumerate(self.engines):
            engine.begin(for_engine(spec, index))
        try:
            return asyncio.run(self._serve())
        finally:
            for memory in memories:
                memory.close()

    async def _serve(self) -> Outcome:
        self._stopped: dict[str, dict[str, Any]] = {}
        scheduler = self.system.make_scheduler([engine.name for engine in self.engines])
        self._service = RolloutService(self.chunk_tokens, lambda name: self.size.max_rows, scheduler)
        threads = [engine.listen(asyncio.get_running_loop(), self._on_message) for engine in self.engines]
        for engine in self.engines:
            self._service.attach(engine.name, engine, self.size.cache_tokens)
        start_s = time.perf_counter()
        ended = await self._generate_all(start_s)
        wall_s = time.perf_counter() - start_s
        for engine in self.engines:
            engine.send("stop")
        for thread in threads:
            await asyncio.to_thread(thread.join)
        await asyncio.sleep(0)
        moves = sum(self._service.num_moves.values())
        return Outcome(
            wall_s, {end.request_id: end.end_s for end in ended}, sum(end.num_tokens for end in ended),
            {end.request_id: end.digest for end in ended}, list(self._stopped.values()), moves,
        )  # fmt: skip

    async def _generate_all(self, start_s: float) -> list["Ended"]:
        """The requests that count."""
        wanted = len(self.workload.requests) // self.system.over_issue
        tasks = [asyncio.create_task(self._generate(request, start_s)) for request in self.workload.requests]
        ended = []
        for next_ended in asyncio.as_completed(tasks):
            ended.append(await next_ended)
            if len(ended) == wanted:
                break
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return ended

    async def _generate(self, request: Request, start_s: float) -> "Ended":
        segment = await self._service.generate(self._generation(request))
        told = hashlib.blake2b(repr((segment.tokens, segment.logprobs)).encode(), digest_size=8).hexdigest()
        return Ended(request.request_id, time.perf_counter() - start_s, len(segment.tokens), told)

    def _generation(self, request: Request) -> GenerationRequest:
        knows = self.system.knows_lengths
        most = request.length if knows else self.workload.shape.max_tokens
        params = SamplingParams(most, self.temperature, seed=request.seed, stop_token_ids=self.stop_token_ids)
        group = "" if knows else request.group
        policy = PolicyVersion(request.tenant, "benchmark", 0)
        return GenerationRequest(request.request_id, "benchmark", policy, None, request.prompt, params, group=group)

    def _on_message(self, engine: EngineProcess, message: tuple[str, Any]) -> None:
        match message:
            case ("results", results):
                self._service.on_results(results)
            case ("updates", increments):
                self._share(engine, increments)
            case ("stopped", counters):
                self._stopped[engine.name] = counters

    def _share(self, engine: EngineProcess, increments: Iterable[Any]) -> None:
        for one in increments:
            self.hub.update(engine.name, one.group, one.request, one.start, one.tokens)
        for other in self.engines:
            if found := self.hub.fetch(other.name):
                other.send("siblings", found)
