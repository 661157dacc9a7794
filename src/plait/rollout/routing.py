"""On which engine a chunk runs: where its prefix is, within a bound on the load. Pure.

After Seer (arXiv 2511.14617, section on the global pool): while the rows of the engines in question differ by at most `max_spread`,
and by a quarter of the most, the one with the longest matching prefix, else the one with the fewest rows. Here, what engines hold
is taken to be what ran there: the request's own last chunk, or a sibling's prompt; `prefix_routing` goes by what they have told.
What the chosen one lacks it gets from the lower tiers of the cache, which engines share (`kv.tiers`).
"""

from collections.abc import Sequence

from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.types.chunks import PullFrom

GroupKey = tuple[str, str, str]
"""(tenant, queue, group)."""

MAX_SPREAD = 32
RELATIVE_SPREAD = 0.25
"""Of the rows of the fullest: in a tail a few rows are much."""


def emptiest(candidates: Sequence[EngineState]) -> str:
    """The one with the fewest rows, of those the one with most room."""
    fewest = min(engine.num_rows for engine in candidates)
    return max((engine for engine in candidates if engine.num_rows == fewest), key=_free_tokens).name


def _free_tokens(engine: EngineState) -> int:
    return engine.cache_tokens - engine.reserved_tokens


class Router:
    def __init__(self, max_spread: int = MAX_SPREAD) -> None:
        self.max_spread = max_spread
        self._last: dict[str, tuple[str, int]] = {}
        """request_id -> (engine of its latest chunk, its tokens there)."""
        self._prompts: dict[GroupKey, dict[str, int]] = {}
        """group -> {engine that has its prompt: tokens of it}."""

    def choose(self, request: GenerationRequest, group: GroupKey, candidates: Sequence[EngineState]) -> str:
        """One of the `candidates`, which have room."""
        if len(candidates) > 1 and self._are_even(candidates) and (hits := self.hits(request, group)):
            longest = max(hits.get(engine.name, 0) for engine in candidates)
            candidates = [engine for engine in candidates if hits.get(engine.name, 0) == longest]
        return emptiest(candidates)

    def _are_even(self, candidates: Sequence[EngineState]) -> bool:
        """Whether their loads differ so little that affinity counts."""
        rows = [engine.num_rows for engine in candidates]
        fewest, most = min(rows), max(rows)
        return most - fewest <= min(self.max_spread, max(1, RELATIVE_SPREAD * most))

    def pull(self, request: GenerationRequest, group: GroupKey, engine: str) -> PullFrom | None:
        """What the engine that was chosen lacks and can get; None: it finds out itself."""
        return None

    def hits(self, request: GenerationRequest, group: GroupKey) -> dict[str, int]:
        """Engine -> tokens of the request's prefix it is taken to hold; others hold none."""
        hits = dict(self._prompts.get(group, {})) if request.group else {}
        if request.request_id in self._last:
            engine, num_tokens = self._last[request.request_id]
            hits[engine] = max(num_tokens, hits.get(engine, 0))
        return hits

    def started(self, request: GenerationRequest, group: GroupKey, engine: str) -> None:
        """A chunk was placed: the engine comes to hold the prompt."""
        prompt_tokens = len(request.context_tokens)
        self._last[request.request_id] = (engine, prompt_tokens + len(request.tokens))
        if request.group:
            self._prompts.setdefault(group, {})[engine] = prompt_tokens

    def ended(self, request: GenerationRequest) -> None:
        """Its chunk ended at its budget: the engine holds what was drawn as well."""
        if request.request_id in self._last:
            self._last[request.request_id] = (self._last[request.request_id][0], len(request.context_tokens) + len(request.tokens))

    def forget(self, request_id: str) -> None:
        self._last.pop(request_id, None)

    def forget_group(self, group: GroupKey) -> None:
        self._prompts.pop(group, None)

    def lose(self, engine: str | None) -> None:
        """What it held is gone; None: what all held."""
        self._last = {} if engine is None else {r: last for r, last in self._last.items() if last[0] != engine}
        for group in list(self._prompts):
            engines = self._prompts[group]
            self._prompts[group] = {} if engine is None else {name: n for name, n in engines.items() if name != engine}
