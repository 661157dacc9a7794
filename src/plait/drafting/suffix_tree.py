"""One prompt group's suffix tree: counts of what followed what in its sequences, and drafts from them.

- Sequences grow token by token in any interleaving. What the tree answers depends on the sequences alone, not on their order.
- A match and its draft lie within one sequence and are at most `depth` tokens long together.
- At most `max_tokens` tokens are held: the sequences that have grown least recently go first; a single longer one loses its head.
- Drafts as SuffixDecoding makes them (Oliaro et al., arXiv 2411.04975, section 3): each end of the context that occurs is tried,
  the path follows the most frequent token, its probability is the share of the matched places that went on so, and the path with
  the largest sum of probabilities wins. Ends that occur at the same places give the same path, so only the longest of them is
  tried; and at most `MAX_MATCHES` different ones, longest first.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from plait.drafting.draft import NO_DRAFT, Draft
from plait.drafting.suffix_automaton import ROOT, SuffixAutomaton

MAX_MATCHES = 8
MAX_CHAIN = 96
"""Links, beyond `depth`, that one token may cost before a new segment begins."""
MIN_PROBABILITY = 0.1
"""Below it a path is not worth verifying (SuffixDecoding)."""
MIN_GARBAGE_TOKENS = 1024
"""Tokens taken out before it is worth building the tree anew."""


@dataclass(slots=True)
class _Sequence:
    tokens: list[int] = field(default_factory=list)
    cursor: int = ROOT
    cuts: list[int] = field(default_factory=list)
    """Positions at which a new segment of the automaton began."""


class SuffixTree:
    """Sequences are known by any hashable name."""

    def __init__(self, depth: int = 64, max_tokens: int = 65_536) -> None:
        if depth < 2 or max_tokens < depth:
            raise ValueError(
                f"depth is {depth} and max_tokens {max_tokens}. Take a depth of 2 or more, and at least as many tokens."
            )
        self.depth, self.max_tokens = depth, max_tokens
        self.num_tokens = 0
        self._num_garbage = 0
        self._sequences: dict[Hashable, _Sequence] = {}
        self._automaton = SuffixAutomaton(depth)

    def __contains__(self, sequence: Hashable) -> bool:
        return sequence in self._sequences

    def __iter__(self) -> Iterator[Hashable]:
        """The sequences, the one that has grown least recently first."""
        return iter(self._sequences)

    def tokens(self, sequence: Hashable) -> tuple[int, ...]:
        return tuple(self._sequences[sequence].tokens)

    def append(self, sequence: Hashable, tokens: Sequence[int]) -> None:
        """Let a sequence grow; an unknown one begins."""
        grown = self._sequences[sequence] = self._sequences.pop(sequence, _Sequence())
        self._feed(grown, tokens)
        self.num_tokens += len(tokens)
        if self.num_tokens > self.max_tokens:
            self._make_room(sequence)

    def remove(self, sequence: Hashable) -> None:
        """Forget a sequence; an unknown one is no error."""
        gone = self._sequences.pop(sequence, None)
        if gone is None:
            return
        ends = [*gone.cuts, len(gone.tokens)]
        for begin, end in zip([0, *gone.cuts], ends, strict=True):
            before = gone.tokens[max(begin - self.depth, 0) : begin]
            self._automaton.remove(self._automaton.start(before), gone.tokens[begin:end])
        self.num_tokens -= len(gone.tokens)
        self._num_garbage += len(gone.tokens)
        if self._num_garbage > max(self.num_tokens, MIN_GARBAGE_TOKENS):
            self._build_anew()

    def speculate(self, context: Sequence[int], max_tokens: int, min_probability: float = MIN_PROBABILITY) -> Draft:
        """Guess at most `max_tokens` tokens after `context`, whose last token is the newest."""
        found, _ = self._best_match(self._match(context, max_tokens), max_tokens, min_probability)
        return found

    def speculate_end(self, sequence: Hashable, max_tokens: int, min_probability: float = MIN_PROBABILITY) -> Draft:
        """Guess what follows a sequence of the tree; the same as with all of it for a context, and faster."""
        found, _ = self._best_match(self._end(sequence, max_tokens), max_tokens, min_probability)
        return found

    def speculate_paths(
        self, context: Sequence[int], max_tokens: int, num_paths: int, min_probability: float = MIN_PROBABILITY
    ) -> list[Draft]:
        """Guess several paths, the one of the best score first; none is the beginning of another."""
        return self._paths(self._match(context, max_tokens), max_tokens, num_paths, min_probability)

    def speculate_end_paths(
        self, sequence: Hashable, max_tokens: int, num_paths: int, min_probability: float = MIN_PROBABILITY
    ) -> list[Draft]:
        """Guess several paths after a sequence of the tree."""
        return self._paths(self._end(sequence, max_tokens), max_tokens, num_paths, min_probability)

    def _match(self, context: Sequence[int], max_tokens: int) -> tuple[int, int]:
        return self._automaton.find(context[-max(self.depth - max_tokens, 1) :])

    def _end(self, sequence: Hashable, max_tokens: int) -> tuple[int, int]:
        held = self._sequences.get(sequence)
        return (held.cursor, max(self.depth - max_tokens, 1)) if held else (ROOT, 0)

    def _best_match(self, match: tuple[int, int], max_tokens: int, min_probability: float) -> tuple[Draft, int]:
        """Return the best draft and the state it starts from; the first match is the longest, which wins ties."""
        best, best_score, start = NO_DRAFT, 0.0, ROOT
        count, link, length = self._automaton.count, self._automaton.link, self._automaton.length
        state, limit = match
        num_tried, before = 0, 0
        while state > ROOT and num_tried < MAX_MATCHES and best_score < max_tokens:
            if count[state] > before and length[link[state]] < limit:
                before = count[state]
                num_tried += 1
                tokens, probabilities = self._follow(state, max_tokens, min_probability)
                if (score := sum(probabilities)) > best_score:
                    best, best_score, start = Draft(tokens, probabilities, min(length[state], limit)), score, state
            state = link[state]
        return best, start

    def _follow(self, state: int, max_tokens: int, min_probability: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return the path of the most frequent tokens, and the probabilities of its beginnings."""
        automaton = self._automaton
        best, following, count = automaton.best, automaton.next, automaton.count
        num_places = count[state]
        tokens: list[int] = []
        probabilities: list[float] = []
        while len(tokens) < max_tokens and (token := best[state]) >= 0:
            state = following[state][token]
            probability = count[state] / num_places
            if probability < min_probability:
                break
            tokens.append(token)
            probabilities.append(probability)
        return tuple(tokens), tuple(probabilities)

    def _paths(self, match: tuple[int, int], max_tokens: int, num_paths: int, min_probability: float) -> list[Draft]:
        """Search by beam from the best match: at each depth the `num_paths` most probable paths go on."""
        draft, start = self._best_match(match, max_tokens, min_probability)
        if not draft.tokens:
            return []
        if num_paths == 1:
            return [draft]
        least = max(min_probability * self._automaton.count[start], 1)
        beam: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [((), (), start)]
        ended: list[tuple[tuple[int, ...], tuple[int, ...], int]] = []
        for _ in range(max_tokens):
            grown = []
            for path in beam:
                longer = self._longer(path, num_paths, least)
                grown += longer
                ended += [] if longer else [path]
            beam = nsmallest(num_paths, grown, key=lambda path: (-path[1][-1], path[0]))
        return self._drafts(ended + beam, start, num_paths, draft.match_tokens)

    def _longer(
        self, path: tuple[tuple[int, ...], tuple[int, ...], int], num_paths: int, least: float
    ) -> list[tuple[tuple[int, ...], tuple[int, ...], int]]:
        tokens, counts, state = path
        count = self._automaton.count
        moves = [(-count[target], token, target) for token, target in self._automaton.next[state].items() if count[target] >= least]
        return [((*tokens, token), (*counts, -negative), target) for negative, token, target in nsmallest(num_paths, moves)]

    def _drafts(
        self, paths: list[tuple[tuple[int, ...], tuple[int, ...], int]], start: int, num_paths: int, match_tokens: int
    ) -> list[Draft]:
        best = nsmallest(num_paths, (path for path in paths if path[0]), key=lambda path: (-sum(path[1]), path[0]))
        places = self._automaton.count[start]
        return [Draft(tokens, tuple(num / places for num in counts), match_tokens) for tokens, counts, _ in best]

    def _feed(self, grown: _Sequence, tokens: Sequence[int]) -> None:
        automaton = self._automaton
        for token in tokens:
            grown.cursor, num_links = automaton.append(grown.cursor, token)
            grown.tokens.append(token)
            if num_links > MAX_CHAIN + self.depth:
                self._cut(grown)

    def _cut(self, grown: _Sequence) -> None:
        """Begin a new segment, of no more than `depth` links."""
        grown.cuts.append(len(grown.tokens))
        grown.cursor = self._automaton.start(grown.tokens[-self.depth :])

    def _make_room(self, newest: Hashable) -> None:
        while self.num_tokens > self.max_tokens and len(self._sequences) > 1:
            self.remove(next(iter(self._sequences)))
        if self.num_tokens > self.max_tokens:
            tail = self._sequences[newest].tokens[-self.max_tokens // 2 :]
            self.remove(newest)
            self.append(newest, tail)

    def _build_anew(self) -> None:
        self._automaton, self._num_garbage = SuffixAutomaton(self.depth), 0
        for held in self._sequences.values():
            tokens, held.tokens, held.cuts = held.tokens, [], []
            held.cursor = ROOT
            self._feed(held, tokens)
