"""The engine under a load, with a limit on its rows that is fixed or found: the loop of worker and service in one process."""

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Protocol

from benchmarks.concurrency_loads import PROMPT_TOKENS, Clients, Load
from benchmarks.engine_systems import NUM_ADAPTERS, PlaitEngine
from plait.cluster.busy_meter import BusyMeter
from plait.engine.adapters import AdapterStore
from plait.engine.engine import Engine
from plait.engine.sampler import Sampler
from plait.rollout.concurrency import ConcurrencyController
from plait.rollout.request import GenerationRequest
from plait.types.chunks import ChunkResult
from plait.types.policy import LOCAL_TENANT, AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams, StopReason

MAX_ROWS = 64
CHUNK_TOKENS = 128
SLOT_TOKENS = POOL_TOKENS = 32768
"""The defaults of `plait run`."""


class Limit(Protocol):
    @property
    def limit(self) -> int: ...

    def observe(self, num_tokens: int, busy_s: float, num_rows: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    limit: int

    def observe(self, num_tokens: int, busy_s: float, num_rows: int) -> None:
        """It stays as it is."""


def make_limit(setting: str) -> Limit:
    """ "adaptive", as `plait run` begins it, or a number of rows."""
    return ConcurrencyController(MAX_ROWS, start_rows=MAX_ROWS // 2) if setting == "adaptive" else Fixed(int(setting))


@dataclass(slots=True)
class Outcome:
    seconds: float = 0.0
    num_tokens: int = 0
    """Drawn."""
    latencies_s: list[float] = field(default_factory=list)
    """Of finished answers."""
    row_seconds: float = 0.0
    """Limit, summed over time."""

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds

    @property
    def mean_limit(self) -> float:
        return self.row_seconds / self.seconds

    @property
    def median_latency_s(self) -> float | None:
        return median(self.latencies_s) if self.latencies_s else None


class LoadedEngine:
    """One run: a fresh engine and its clients."""

    def __init__(self, model: PlaitEngine, load: Load, limit: Limit) -> None:
        self.model, self.load, self.limit = model, load, limit
        adapters = AdapterStore(lambda ref: model.adapters[ref.policy.version], NUM_ADAPTERS)
        self.engine = Engine(
            model.decoder, adapters, "benchmark", max_rows=MAX_ROWS, slot_tokens=SLOT_TOKENS, pool_tokens=POOL_TOKENS,
            max_context_tokens=1024, sampler=Sampler(use_gumbel=not model.is_batch_invariant),
        )  # fmt: skip
        self._waiting: deque[GenerationRequest] = deque()
        self._running: dict[str, GenerationRequest] = {}
        self._asked: dict[str, tuple[Clients, float]] = {}
        """Request -> who asked, and when."""
        self._asking: Counter[Clients] = Counter()
        self._meter = BusyMeter()
        self._numbers = count()
        self.outcome = Outcome()

    def run(self, seconds: float) -> Outcome:
        start_s = now_s = time.perf_counter()
        while now_s - start_s < seconds:
            self._ask((now_s - start_s) / seconds, now_s)
            self._submit()
            before = self.engine.num_decoded_tokens
            results = self.engine.step()
            num_tokens, step_s = self.engine.num_decoded_tokens - before, now_s
            now_s = time.perf_counter()
            self.outcome.num_tokens += num_tokens
            self.outcome.row_seconds += self.limit.limit * (now_s - step_s)
            self._take(results, now_s)
            for span in self._meter.add(step_s, now_s, num_tokens, num_rows=self.engine.num_decoded_rows):
                self.limit.observe(span.num_tokens, span.end_s - span.start_s, span.num_rows)
        self.outcome.seconds = now_s - start_s
        return self.outcome

    def _ask(self, share: float, now_s: float) -> None:
        """Each client of the phase that has no request makes one. Those of an earlier phase get their answers and go."""
        for clients in self.load.phase_at(share).clients:
            for _ in range(clients.number - self._asking[clients]):
                request = self._request(clients)
                self._asking[clients] += 1
                self._asked[request.request_id] = clients, now_s
                self._waiting.append(request)

    def _request(self, clients: Clients) -> GenerationRequest:
        number = next(self._numbers)
        policy = PolicyVersion(LOCAL_TENANT, "benchmark", number % NUM_ADAPTERS)
        vocab = self.model.config.vocab_size
        prompt = tuple((number * 7919 + 31 * position) % vocab for position in range(PROMPT_TOKENS))
        params = SamplingParams(clients.new_tokens, seed=number)
        return GenerationRequest(str(number), "benchmark", policy, AdapterRef(policy, "", str(policy)), prompt, params)

    def _submit(self) -> None:
        while self._waiting and len(self._running) < self.limit.limit:
            request = self._waiting.popleft()
            self._running[request.request_id] = request
            self.engine.submit(request.next_chunk(CHUNK_TOKENS))

    def _take(self, results: list[ChunkResult], now_s: float) -> None:
        for result in results:
            request = self._running.pop(result.request_id)
            if problem := request.problem_with(result):
                raise RuntimeError(problem)
            request.append(result)
            if result.stop == StopReason.BUDGET:
                self._waiting.append(request)
                continue
            clients, asked_s = self._asked.pop(request.request_id)
            self._asking[clients] -= 1
            self.outcome.latencies_s.append(now_s - asked_s)
