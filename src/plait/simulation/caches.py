"""What the engines' caches hold in simulated time: prompts of groups, and requests between two chunks or two turns.

A chunk stores its cache when it ends at its budget; whoever goes on from it elsewhere fetches it. With `pool_tokens` the least
recently stored of what waits is lost first, and computed again.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from plait.simulation.light_request import prompt_of
from plait.types.chunks import Chunk


@dataclass(slots=True)
class CacheCounts:
    """Tokens of contexts, by where they came from."""

    hit_tokens: int = 0
    """The engine had them."""
    fetched_tokens: int = 0
    computed_tokens: int = 0
    most_stored_tokens: int = 0


class Caches:
    """`fetch_s(engine)(tokens)`: how long an engine takes to fetch. `pool_tokens` is of all engines together; None: ample."""

    def __init__(self, fetch_s: Mapping[str, Callable[[int], float]], pool_tokens: int | None = None) -> None:
        self.counts = CacheCounts()
        self._fetch_s, self._pool_tokens = fetch_s, pool_tokens
        self._prompts: dict[str, set[str]] = {}
        """Engines that have a prompt, by its name."""
        self._stored: OrderedDict[str, tuple[str, int]] = OrderedDict()
        """Request -> (engine, tokens), the one stored first comes first."""
        self._follows: dict[str, str] = {}
        """Request -> the one of an earlier turn that its context begins with."""
        self.stored_tokens = 0

    def follow(self, request_id: str, earlier_id: str) -> None:
        self._follows[request_id] = earlier_id

    def needs(self, engine: str, chunk: Chunk) -> tuple[int, float]:
        """(tokens of a chunk's context to be computed, seconds to fetch the rest); the engine has all of it from then on."""
        num_tokens = len(chunk.context_tokens)
        prompt = prompt_of(chunk.context_tokens, chunk.group)
        where, found_tokens = self._take(chunk)
        found_tokens = min(found_tokens, num_tokens)
        if found_tokens < num_tokens - chunk.generated_tokens and prompt:
            where, found_tokens = self._prompt(engine, prompt, where, found_tokens, num_tokens - chunk.generated_tokens)
        self.counts.computed_tokens += num_tokens - found_tokens
        if where == engine:
            self.counts.hit_tokens += found_tokens
            return num_tokens - found_tokens, 0.0
        self.counts.fetched_tokens += found_tokens
        return num_tokens - found_tokens, self._fetch_s[engine](found_tokens) if found_tokens else 0.0

    def _take(self, chunk: Chunk) -> tuple[str, int]:
        name = chunk.generation if chunk.generated_tokens else self._follows.pop(chunk.generation, "")
        found = self._stored.pop(name, ("", 0))
        self.stored_tokens -= found[1]
        return found

    def _prompt(self, engine: str, prompt: str, where: str, found_tokens: int, prompt_tokens: int) -> tuple[str, int]:
        """Another request's, if one has computed it."""
        holders = self._prompts.setdefault(prompt, set())
        if engine in holders:
            where, found_tokens = engine, prompt_tokens
        elif holders:
            where, found_tokens = min(holders), prompt_tokens
        holders.add(engine)
        return where, found_tokens

    def store(self, engine: str, request_id: str, num_tokens: int) -> None:
        """A chunk has ended at its budget, or a turn whose conversation goes on."""
        self._stored[request_id] = (engine, num_tokens)
        self.stored_tokens += num_tokens
        while self._pool_tokens is not None and self.stored_tokens > self._pool_tokens:
            _, (_, lost_tokens) = self._stored.popitem(last=False)
            self.stored_tokens -= lost_tokens
        self.counts.most_stored_tokens = max(self.counts.most_stored_tokens, self.stored_tokens)

    def forget(self, request_id: str) -> None:
        """Nobody goes on from it."""
        self._follows.pop(request_id, None)
        self.stored_tokens -= self._stored.pop(request_id, ("", 0))[1]

    def forget_prompt(self, prompt: str) -> None:
        self._prompts.pop(prompt, None)
