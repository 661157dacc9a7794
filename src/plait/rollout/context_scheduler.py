"""Seer's scheduler (arXiv 2511.14617) for many tenants: which generation gets the next chunk, and where. Pure.

- Tenants, and the queues of each, share by start-time fair queueing (`fair_line`), charged in new tokens: a chunk's budget when it
  starts, less what it did not draw once it ends. Within a queue the order is that of `context_queue`.
  So a tenant's tail delays another's next chunk by at most, of each other tenant, `turn_chunks + 1` budgets and what it has
  running, in tokens charged (`fair_line`; property-tested there), plus the wait for one that does not fit (below).
- Admission (`admission`): only what fits is placed; when nothing is placed, nothing that waits would fit where a row is free. So
  while no waiting chunk is larger than 15 % of an engine, every engine with a free row has over 85 % of its cache reserved.
- The exception is one engine at a time that drains for a request which was next, did not fit, and was passed over `max_bypasses`
  times: it takes nothing else until that request fits, at most until the chunks that run there have ended.
- Routing is that of `routing`.
- Each decision takes O(log n) of what waits, and O(e) of e engines; `requeue_running` O(n).
"""

from collections.abc import Iterator, Sequence

import msgspec

from plait.rollout.admission import Reservation
from plait.rollout.context_queue import ContextQueue
from plait.rollout.engine_state import EngineState
from plait.rollout.fair_line import FairLine
from plait.rollout.group import Sample
from plait.rollout.keyed_heap import KeyedHeap
from plait.rollout.length_estimates import EstimateErrors, LengthHistory
from plait.rollout.request import GenerationRequest
from plait.rollout.routing import Router
from plait.rollout.scheduler import Placement, misfit, placement_tokens


class SchedulerLimits(msgspec.Struct, frozen=True):
    turn_chunks: int = 1
    """Chunks (whole budgets) a queue has in a row before another's turn; tenants likewise."""
    max_bypasses: int = 2
    """Chunks placed past a request that is next and does not fit, before an engine drains for it."""
    num_looks: int = 8
    """Requests looked at, in order, for one that fits; after them the smallest of all."""
    patience: int = 1024
    aging_turn: int = 8
    """Both as in `context_queue`."""
    uses_context: bool = True
    """False: first come first served in each queue, with the same admission, fairness and routing."""


class ContextScheduler:
    def __init__(
        self,
        chunk_tokens: int = 1,
        limits: SchedulerLimits = SchedulerLimits(),
        router: Router | None = None,
        history: LengthHistory | None = None,
    ) -> None:
        self.chunk_tokens, self.limits = chunk_tokens, limits
        self.router, self.history = router or Router(), LengthHistory() if history is None else history
        self.errors = EstimateErrors()
        self._samples: dict[str, Sample] = {}
        self._num_running = 0
        self._num_arrived = 0
        self._tenants = FairLine()
        self._lines: dict[str, FairLine] = {}
        """Queues by tenant."""
        self._queues: dict[tuple[str, str], ContextQueue] = {}
        self._smallest: KeyedHeap[tuple[int, int]] = KeyedHeap()
        """All that wait, by (footprint, number of arrival)."""
        self._reservation = Reservation()

    @property
    def num_running(self) -> int:
        return self._num_running

    @property
    def num_waiting(self) -> int:
        return len(self._samples) - self._num_running

    def __iter__(self) -> Iterator[GenerationRequest]:
        return (sample.request for sample in self._samples.values())

    def set_weight(self, tenant: str, weight: float) -> None:
        """Of what starts from now on; 1 for a tenant that none was set for. ConfigError unless finite and above 0."""
        self._tenants.set_weight(tenant, weight)

    def running(self, request_id: str) -> GenerationRequest | None:
        sample = self._samples.get(request_id)
        return None if sample is None or sample.engine is None else sample.request

    # ---- coming and going

    def add(self, request: GenerationRequest) -> None:
        if request.request_id in self._samples:
            raise ValueError(f"request_id {request.request_id!r} is here already")
        key = (request.policy.tenant, request.queue)
        if key not in self._queues:
            limits = self.limits
            self._queues[key] = ContextQueue(self.history, self.errors, limits.patience, limits.aging_turn, limits.uses_context)
        sample = self._queues[key].join(request, self._num_arrived)
        self._num_arrived += 1
        self._samples[request.request_id] = sample
        self._wait(sample)

    def _wait(self, sample: Sample) -> None:
        request, tenant = sample.request, sample.tenant
        sample.budget_tokens = request.chunk_budget(self.chunk_tokens)
        sample.footprint_tokens = placement_tokens(request, sample.budget_tokens)
        self._queues[tenant, request.queue].push(sample)
        self._smallest.put(request.request_id, (sample.footprint_tokens, sample.number))
        self._lines.setdefault(tenant, FairLine()).enter(request.queue)
        self._tenants.enter(tenant)

    def requeue(self, request_id: str) -> None:
        sample = self._stop(request_id)
        self.router.ended(sample.request)
        self._wait(sample)

    def _stop(self, request_id: str, is_refunded: bool = True) -> Sample:
        """Its chunk has ended. What that did not draw is refunded, so that only what was drawn counts."""
        sample = self._samples[request_id]
        if sample.engine is None:
            raise KeyError(request_id)
        sample.engine = None
        self._num_running -= 1
        unused = sample.charged_tokens - (len(sample.request.tokens) - sample.num_tokens_before)
        if is_refunded and unused > 0:
            self._tenants.refund(sample.tenant, unused)
            self._lines[sample.tenant].refund(sample.request.queue, unused)
        return sample

    def requeue_running(self, engine: str | None = None) -> None:
        self.router.lose(engine)
        self._reservation.lose(engine)
        for sample in list(self._samples.values()):
            if sample.engine is not None and engine in (None, sample.engine):
                self._wait(self._stop(sample.request_id))

    def finish(self, request_id: str) -> GenerationRequest:
        sample = self._stop(request_id)
        self._forget(sample, is_finished=True)
        return sample.request

    def remove(self, request_id: str) -> bool:
        """As in `Scheduler`. A chunk that is cancelled is charged in full: its engine has worked for it."""
        sample = self._samples.get(request_id)
        if sample is None:
            return False
        was_running = sample.engine is not None
        if was_running:
            self._stop(request_id, is_refunded=False)
        else:
            self._queues[sample.tenant, sample.request.queue].discard(sample)
            self._end_wait(sample)
        self._forget(sample, is_finished=False)
        return was_running

    def _end_wait(self, sample: Sample) -> None:
        tenant, queue = sample.tenant, sample.request.queue
        self._smallest.discard(sample.request_id)
        if not self._queues[tenant, queue]:
            self._lines[tenant].leave(queue)
        if not self._lines[tenant]:
            self._tenants.leave(tenant)

    def _forget(self, sample: Sample, is_finished: bool) -> None:
        key = (sample.tenant, sample.request.queue)
        del self._samples[sample.request_id]
        self._reservation.release(sample)
        self.router.forget(sample.request_id)
        ended = self._queues[key].end(sample, is_finished)
        if ended is not None:
            self.router.forget_group(ended.key)
        if self._queues[key].is_idle:
            del self._queues[key]

    # ---- decisions

    def place(self, engines: Sequence[EngineState]) -> Placement | None:
        if not self.num_waiting or not any(engine.num_rows < engine.max_rows for engine in engines):
            return None
        held = self._reservation.sample
        if held is not None and (placement := self._start(held, engines, engines)) is not None:
            return placement
        open_engines = self._reservation.others(engines, 0 if held is None else held.footprint_tokens)
        head = self._head()
        return self._start(head, open_engines, engines) or self._backfill(head, open_engines, engines)

    def _head(self) -> Sample:
        tenant = self._tenants.first()
        assert tenant is not None
        queue = self._lines[tenant].first()
        assert queue is not None
        sample = self._queues[tenant, queue].first()
        assert sample is not None
        return sample

    def _start(self, sample: Sample, open_engines: Sequence[EngineState], engines: Sequence[EngineState]) -> Placement | None:
        """Place it, if it fits one of the open engines, or none at all for ever."""
        request, budget, footprint = sample.request, sample.budget_tokens, sample.footprint_tokens
        candidates = [  # `has_room`, without a call for each.
            engine for engine in open_engines
            if engine.num_rows < engine.max_rows and footprint <= engine.cache_tokens - engine.reserved_tokens
        ]  # fmt: skip
        if candidates:
            name = self.router.choose(request, sample.group.key, candidates)
            pull = self.router.pull(request, sample.group.key, name)
            self.router.started(request, sample.group.key, name)
            self._run(sample, name, budget)
            return Placement(request, name, budget, footprint, pull=pull)
        if problem := misfit(request, footprint, engines):
            self._run(sample, "", 0)
            return Placement(request, "", budget, footprint, problem=problem)
        return None

    def _run(self, sample: Sample, engine: str, cost: int) -> None:
        tenant, queue = sample.tenant, sample.request.queue
        sample.engine, sample.charged_tokens, sample.num_tokens_before = engine, cost, len(sample.request.tokens)
        sample.num_bypasses = 0
        self._reservation.release(sample)
        self._num_running += 1
        self._queues[tenant, queue].take(sample)
        self._tenants.turn_cost = self._lines[tenant].turn_cost = float(self.limits.turn_chunks * self.chunk_tokens)
        self._tenants.charge(tenant, cost)
        self._lines[tenant].charge(queue, cost)
        self._end_wait(sample)

    def _backfill(self, head: Sample, open_engines: Sequence[EngineState], engines: Sequence[EngineState]) -> Placement | None:
        """Start another than the head, which does not fit: one of the next in its queue, else the smallest of all."""
        smallest = self._smallest.first()
        free = max((e.cache_tokens - e.reserved_tokens for e in open_engines if e.num_rows < e.max_rows), default=-1)
        if smallest is None or self._smallest.key(smallest)[0] > free:
            return None
        looks = self._queues[head.tenant, head.request.queue].candidates(self.limits.num_looks)
        for sample in [*looks, self._samples[smallest]]:
            if sample.footprint_tokens <= free and (placement := self._start(sample, open_engines, engines)):
                self._reservation.note_bypass(head, self.limits.max_bypasses)
                return placement
        return None
