"""The controller's side of grouped drafting: takes tokens from the engines and hands each what its siblings' engines decoded.

- `update` may come late, twice or out of order; a gap waits until it is closed. `fetch` gives an engine what it has not been given,
  without gaps. So the trees of all engines that follow a group come to hold the same sequences, whatever the order of messages.
- A request that one engine alone has decoded is not sent back to it.
- An engine that begins anew, or gave a group up, registers it again and gets everything again. It sends its updates before that.
- A group that has ended is ignored until it begins again.
- Bounded: `max_tokens` tokens in all; the group updated least recently goes first, as if it had ended.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from plait.drafting.draft import DraftIncrement
from plait.drafting.token_log import TokenLog

MAX_ENDED_GROUPS = 4096
"""Names of ended groups remembered, against late messages."""


@dataclass(slots=True)
class _Stream:
    """One request's tokens; `owner` is the only engine that has sent any since it registered, or empty."""

    owner: str
    log: TokenLog = field(default_factory=TokenLog)
    tokens: array = field(default_factory=lambda: array("I"))


@dataclass(slots=True)
class _Group:
    streams: dict[str, _Stream] = field(default_factory=dict)
    given: dict[str, dict[str, int]] = field(default_factory=dict)
    """Engine -> request -> number of tokens given to it; the engines are those that follow the group."""


class DraftHub:
    """Pure bookkeeping: who sent what, who was given what."""

    def __init__(self, max_tokens: int = 4_000_000) -> None:
        self.max_tokens = max_tokens
        self.num_tokens = 0
        self._groups: dict[str, _Group] = {}
        self._ended: dict[str, None] = {}
        self._due: dict[str, dict[tuple[str, str], None]] = {}
        """Engine -> group and request of which it has not been given everything, in order."""

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self._groups)

    def register_group(self, engine: str, group: str) -> None:
        """Let an engine follow a group from its first token on."""
        if (known := self._group(engine, group)) is None:
            return
        known.given[engine] = {}
        for request, stream in known.streams.items():
            stream.owner = ""
            self._note_due(group, request)

    def update(self, engine: str, group: str, request: str, start: int, tokens: Sequence[int]) -> None:
        """Take tokens that `engine` decoded, from position `start` of the request on. The engine follows the group from then on."""
        if (known := self._group(engine, group)) is None:
            return
        stream = known.streams.get(request)
        if stream is None:
            stream = known.streams[request] = _Stream(engine)
        elif stream.owner != engine:
            stream.owner = ""
        fresh = stream.log.add(start, tokens)
        stream.tokens.extend(fresh)
        self.num_tokens += len(fresh)
        self._note_due(group, request)
        self._make_room(group)

    def fetch(self, engine: str) -> list[DraftIncrement]:
        """Return what the engine has not been given of the groups it follows."""
        found = []
        for group, request in self._due.pop(engine, ()):
            known = self._groups.get(group)
            if known is not None and engine in known.given and request in known.streams:
                given, tokens = known.given[engine].get(request, 0), known.streams[request].tokens
                if given < len(tokens):
                    found.append(DraftIncrement(group, request, given, tuple(tokens[given:])))
                    known.given[engine][request] = len(tokens)
        return found

    def lose_engine(self, engine: str) -> None:
        """Forget an engine; what it sent stays, for the engines its requests go to."""
        self._due.pop(engine, None)
        for known in self._groups.values():
            known.given.pop(engine, None)
            for stream in known.streams.values():
                stream.owner = "" if stream.owner == engine else stream.owner

    def begin_group(self, group: str) -> None:
        """Its first generation is to come, though it may have ended before."""
        self._ended.pop(group, None)

    def end_group(self, group: str) -> None:
        """Forget a group and ignore what still comes of it."""
        self._ended[group] = None
        if len(self._ended) > MAX_ENDED_GROUPS:
            del self._ended[next(iter(self._ended))]
        if (known := self._groups.pop(group, None)) is None:
            return
        self.num_tokens -= sum(len(stream.tokens) for stream in known.streams.values())

    def _group(self, engine: str, group: str) -> _Group | None:
        """Return the group, followed by the engine; None if it has ended."""
        if group in self._ended:
            return None
        known = self._groups.setdefault(group, _Group())
        if engine not in known.given:
            known.given[engine] = {}
            for request in known.streams:
                self._due.setdefault(engine, {})[group, request] = None
        return known

    def _note_due(self, group: str, request: str) -> None:
        known = self._groups[group]
        stream = known.streams[request]
        for engine, given in known.given.items():
            if engine != stream.owner and given.get(request, 0) < len(stream.tokens):
                self._due.setdefault(engine, {})[group, request] = None

    def _make_room(self, used: str) -> None:
        self._groups[used] = self._groups.pop(used)
        while self.num_tokens > self.max_tokens and len(self._groups) > 1:
            self.end_group(next(iter(self._groups)))
