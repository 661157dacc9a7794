"""Routing by what engines have told of their caches, whichever generation, turn or tenant's request had put it there. Pure.

Within the bound on the load (`routing`) a chunk goes to the engine that has most of its context at hand, on its device or in memory
that it reads, of those to the one with most on its device, of those to the emptiest. What it can get from further down is named as
a pull: it is brought up before the chunk starts, while others decode. Wrong knowledge costs time, and changes no token.

A decision takes O(log n) of the context's blocks for each engine; each block of a generation is hashed once, and a prompt once for
all siblings.
"""

from collections.abc import Callable, Sequence

from plait.kv.keys import Key, root_key
from plait.kv.pool import BLOCK_TOKENS
from plait.rollout.engine_state import EngineState
from plait.rollout.holdings import Holdings
from plait.rollout.request import GenerationRequest
from plait.rollout.routing import MAX_SPREAD, GroupKey, Router, emptiest
from plait.rollout.scheduler import Scheduler
from plait.rollout.token_chain import TokenChain
from plait.types.chunks import PullFrom

RootOf = Callable[[GenerationRequest], Key]


class PrefixRouter(Router):
    """`root_of` is to be set before anything is placed. It must give what engines do, or nothing that they tell is found."""

    root_of: RootOf

    def __init__(self, holdings: Holdings, max_spread: int = MAX_SPREAD) -> None:
        super().__init__(max_spread)
        self.holdings = holdings
        self._chains: dict[str, TokenChain] = {}
        self._shared: dict[GroupKey, tuple[tuple[int, ...], TokenChain]] = {}
        """A prompt of the group and its chain: that of all, but for turns after the first."""
        self._promises: dict[str, tuple[str, list[Key]]] = {}
        """request_id -> (engine, blocks of a prompt that it computes)."""

    def choose(self, request: GenerationRequest, group: GroupKey, candidates: Sequence[EngineState]) -> str:
        if len(candidates) > 1 and self._are_even(candidates):
            keys = self._chain(request, group).keys
            worth = {engine.name: self.holdings.at_hand(engine.name, keys) for engine in candidates}
            most = max(worth.values())
            candidates = [engine for engine in candidates if worth[engine.name] == most]
        return emptiest(candidates)

    def pull(self, request: GenerationRequest, group: GroupKey, engine: str) -> PullFrom:
        return self.holdings.pull(engine, self._chain(request, group))

    def _chain(self, request: GenerationRequest, group: GroupKey) -> TokenChain:
        chain = self._chains.get(request.request_id)
        if chain is None:
            chain = self._chains[request.request_id] = self._new_chain(request, group)
        chain.grow(request.context_tokens, request.tokens)
        return chain

    def _new_chain(self, request: GenerationRequest, group: GroupKey) -> TokenChain:
        prompt, shared = self._shared.get(group, ((), None))
        if shared is not None and prompt == request.context_tokens:
            return shared.copy()
        chain = TokenChain(self.root_of(request), BLOCK_TOKENS)
        if request.group and shared is None:
            chain.grow(request.context_tokens, ())
            self._shared[group] = (request.context_tokens, chain.copy())
        return chain

    # ---- coming and going

    def started(self, request: GenerationRequest, group: GroupKey, engine: str) -> None:
        """A chunk was placed: the engine comes to hold the prompt. Of later chunks it tells in time."""
        if request.tokens:
            return
        keys = self._chain(request, group).keys.copy()
        if self.holdings.at_hand(engine, keys)[1] < len(keys):
            self._promises[request.request_id] = (engine, keys)
            self.holdings.promise(engine, keys)

    def ended(self, request: GenerationRequest) -> None:
        self._settle(request.request_id)

    def _settle(self, request_id: str) -> None:
        engine, keys = self._promises.pop(request_id, ("", []))
        if engine:
            self.holdings.settled(engine, keys)

    def forget(self, request_id: str) -> None:
        self._settle(request_id)
        self._chains.pop(request_id, None)

    def forget_group(self, group: GroupKey) -> None:
        self._shared.pop(group, None)

    def lose(self, engine: str | None) -> None:
        """What it held is gone, and what it had promised; None: what all did."""
        self._promises = {name: one for name, one in self._promises.items() if engine not in (None, one[0])}
        self.holdings.lose(engine)


def root_of(base_digest: str, dtype: str, request: GenerationRequest) -> Key:
    """As engines of that base give it; `dtype` as in settings."""
    digest = request.adapter.digest if request.adapter else None
    return root_key(base_digest, f"torch.{dtype}", request.policy, digest)


def prefix_router(scheduler: Scheduler) -> PrefixRouter | None:
    """Of a scheduler that goes by what engines tell, or one that stands before it."""
    router = getattr(scheduler, "router", None)
    return router if isinstance(router, PrefixRouter) else None
