"""One engine's drafter: a suffix tree for each prompt group it runs, fed by its own rows and by siblings elsewhere.

- A request's own tokens count as much as its siblings'; so does the prompt.
- Tokens are put into a group's tree when a draft of the group is asked for. Where none ever is, they cost next to nothing.
- What the engine decodes itself goes through `append` and waits in `take_updates` to be sent to the hub; what the hub sends comes
  through `absorb`. Both may repeat tokens; a gap waits until it is closed.
- Tokens of a group that is not registered are ignored: messages may come after the end of a group.
- Bounded: at most `group_tokens` tokens a group and `total_tokens` in all (some 500 bytes each); the group used least recently
  goes first, and has no drafts until it is registered again.
- Measured in pure Python: 3-5 us to append a token, 8-12 us to draft 8 tokens (arctic-inference's C++ tree: 2.7 and 9.8 us).
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from plait.drafting.draft import NO_DRAFT, Draft, DraftIncrement, DraftQuery
from plait.drafting.draft_tree import NO_TREE, DraftTree, merged
from plait.drafting.outbox import Outbox
from plait.drafting.suffix_tree import MIN_PROBABILITY, SuffixTree
from plait.drafting.token_log import TokenLog

PROMPT_TAIL_TOKENS = 16
"""The end of the prompt that each request's sequence begins with, so that its first tokens can be matched."""


@dataclass(slots=True)
class _Group:
    tree: SuffixTree
    prompt_tail: tuple[int, ...]
    logs: dict[str, TokenLog] = field(default_factory=dict)
    unlearnt: dict[Hashable, list[int]] = field(default_factory=dict)
    """Tokens of each sequence that are not in the tree yet."""
    num_unlearnt: int = 0

    @property
    def num_tokens(self) -> int:
        return self.tree.num_tokens + self.num_unlearnt

    def add(self, sequence: Hashable, tokens: Sequence[int]) -> None:
        waiting = self.unlearnt.get(sequence)
        if waiting is None:
            waiting = self.unlearnt[sequence] = []
        waiting.extend(tokens)
        self.num_unlearnt += len(tokens)

    def answer(self, request: str) -> tuple[int, ...]:
        learnt = self.tree.tokens(request) if request in self.tree else ()
        return (*learnt, *self.unlearnt.get(request, ()))[len(self.prompt_tail) :]

    def learn(self) -> None:
        for sequence, tokens in self.unlearnt.items():
            self.tree.append(sequence, tokens)
        self.unlearnt, self.num_unlearnt = {}, 0


class LocalDrafter:
    """Learns from tokens and guesses the next ones; it never sees the model."""

    def __init__(
        self,
        depth: int = 64,
        group_tokens: int = 65_536,
        total_tokens: int = 262_144,
        min_probability: float = MIN_PROBABILITY,
    ) -> None:
        self._depth, self._group_tokens, self._total_tokens = depth, group_tokens, total_tokens
        self._min_probability = min_probability
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[str, str] = {}
        self._outbox = Outbox()
        self.num_tokens = 0
        """Tokens held in all trees, or waiting to be learnt."""
        self.num_unlearnt = 0
        """Those that wait."""

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self._groups)

    def tree(self, group: str) -> SuffixTree:
        """The group's tree with all its tokens, to look at."""
        return self._learnt(self._groups[group]).tree

    def register_group(self, group: str, prompt_tokens: Sequence[int] = (), history: Iterable[Sequence[int]] = ()) -> None:
        """Begin to learn a group's tokens. `history`: earlier answers to the same prompt, which are the first to be given up."""
        if group in self._groups:
            return
        known = self._groups[group] = _Group(
            SuffixTree(self._depth, self._group_tokens), tuple(prompt_tokens[-PROMPT_TAIL_TOKENS:])
        )
        named: list[tuple[Hashable, Sequence[int]]] = [(("history", i), tokens) for i, tokens in enumerate(history)]
        for name, tokens in [*named, (("prompt",), prompt_tokens)]:
            self._feed(known, name, tokens)
        self._make_room(group)

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def answers(self, group: str) -> list[tuple[int, ...]]:
        """What requests of a group have drawn, here and elsewhere, as far as it is held; nothing of the prompt."""
        known = self._groups.get(group)
        return [] if known is None else [known.answer(request) for request in known.logs]

    def append(self, group: str, request: str, tokens: Sequence[int], start: int | None = None) -> None:
        """Learn tokens decoded here, from position `start` on (None: after all that are known), and keep them for the hub.

        A request that comes from another engine is best begun with all its tokens from position 0; a new one may be begun with
        none, so that its first tokens can be drafted.
        """
        if (known := self._groups.get(group)) is not None:
            begin = self._log(known, group, request).num_tokens if start is None else start
            self._outbox.post(group, request, begin, tokens)
            self._grow(known, group, request, begin, tokens)

    def absorb(self, increments: Iterable[DraftIncrement]) -> None:
        """Learn tokens decoded elsewhere."""
        for piece in increments:
            if (known := self._groups.get(piece.group)) is not None:
                self._grow(known, piece.group, piece.request, piece.start, piece.tokens)

    def take_updates(self) -> list[DraftIncrement]:
        """Return what `append` got since the last call, one increment a request where they join."""
        return self._outbox.take()

    def forget(self, request: str) -> None:
        """Unlearn a request, for instance one that was cancelled. A finished one is kept for its siblings."""
        if (known := self._groups.get(self._group_of.pop(request, ""))) is not None:
            before = self._learnt(known).num_tokens
            known.tree.remove(request)
            self.num_tokens += known.num_tokens - before
            del known.logs[request]
        self._outbox.drop(request)

    def forget_group(self, group: str) -> None:
        if (known := self._groups.pop(group, None)) is not None:
            self.num_tokens -= known.num_tokens
            self.num_unlearnt -= known.num_unlearnt
            for request in known.logs:
                del self._group_of[request]

    def batch_speculate(self, requests: Sequence[DraftQuery]) -> list[Draft]:
        """Return one draft for each query, an empty one where there is nothing to go by."""
        return [self._speculate(query) for query in requests]

    def speculate_paths(self, query: DraftQuery, num_paths: int) -> list[Draft]:
        """Return up to `num_paths` different drafts, the best first."""
        if (known := self._groups.get(query.group)) is None:
            return []
        tree = self._learnt(known).tree
        if query.context_tail:
            return tree.speculate_paths(query.context_tail, query.max_tokens, num_paths, self._min_probability)
        return tree.speculate_end_paths(query.request, query.max_tokens, num_paths, self._min_probability)

    def speculate_tree(self, query: DraftQuery, num_paths: int) -> DraftTree:
        """Return what `speculate_paths` gives as a tree."""
        drafts = self.speculate_paths(query, num_paths) if num_paths > 1 else [self._speculate(query)]
        return merged(drafts) if drafts else NO_TREE

    def _speculate(self, query: DraftQuery) -> Draft:
        if (known := self._groups.get(query.group)) is None:
            return NO_DRAFT
        tree = self._learnt(known).tree
        if query.context_tail:
            return tree.speculate(query.context_tail, query.max_tokens, self._min_probability)
        return tree.speculate_end(query.request, query.max_tokens, self._min_probability)

    def _learnt(self, known: _Group) -> _Group:
        """The group with all its tokens in its tree."""
        if known.unlearnt:
            before = known.num_tokens
            self.num_unlearnt -= known.num_unlearnt
            known.learn()
            self.num_tokens += known.num_tokens - before
        return known

    def _log(self, known: _Group, group: str, request: str) -> TokenLog:
        log = known.logs.get(request)
        if log is None:
            log = known.logs[request] = TokenLog()
            self._group_of[request] = group
            self._feed(known, request, known.prompt_tail)
        return log

    def _grow(self, known: _Group, group: str, request: str, start: int, tokens: Sequence[int]) -> None:
        fresh = self._log(known, group, request).add(start, tokens)
        if fresh:
            self._feed(known, request, fresh)
            self._make_room(group)

    def _feed(self, known: _Group, sequence: Hashable, tokens: Sequence[int]) -> None:
        known.add(sequence, tokens)
        self.num_tokens += len(tokens)
        self.num_unlearnt += len(tokens)
        if known.num_unlearnt > self._group_tokens:
            self._learnt(known)

    def _make_room(self, used: str) -> None:
        """Note that a group was used, and give up others while too many tokens are held."""
        self._groups[used] = self._groups.pop(used)
        while len(self._groups) > 1 and self.num_tokens > self._total_tokens:
            self.forget_group(next(iter(self._groups)))
