"""Counts of all short substrings of growing sequences, in one structure that takes one token at a time.

A suffix automaton (Blumer et al. 1985; Crochemore 1986), generalised to several sequences. Its suffix links are the compressed
suffix tree of the reversed text: a state is a set of substrings that occur at the same places, so one count serves them all, and
the links from the state of a context lead through its shorter ends, each time to the next one that occurs in more places. Nothing
is matched again as a sequence grows.

- A sequence is known here by its *cursor*, the state of its text so far. A substring never runs from one sequence into another.
- `count[state]` is exact for substrings of at most `depth` tokens. Longer ones may be counted short, because of segments.
- Where a text repeats itself the chain of links grows with its length. The owner then begins a new *segment*: the last `depth`
  tokens, fed again without counting, so that a token costs a bounded time.
- `best[state]` is the token that most often follows, of equal ones the smallest; -1 where nothing follows. So it depends on the
  text alone, not on the order in which sequences came.
- Taking a sequence out lowers counts; its states remain until the owner builds anew.
"""

from collections.abc import Sequence

ROOT = 0


class SuffixAutomaton:
    """States are numbers; their attributes lie in lists, which the garbage collector need not walk."""

    __slots__ = ("best", "count", "depth", "length", "link", "next")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.link: list[int] = [-1]
        self.length: list[int] = [0]
        self.count: list[int] = [0]
        self.best: list[int] = [-1]
        self.next: list[dict[int, int]] = [{}]

    @property
    def num_states(self) -> int:
        return len(self.link)

    def start(self, context: Sequence[int]) -> int:
        """Return the cursor of a new segment that goes on from the last `depth` tokens of `context`; they are not counted."""
        cursor = ROOT
        for token in context[-self.depth :]:
            cursor = self._extend(cursor, token)
        return cursor

    def append(self, cursor: int, token: int) -> tuple[int, int]:
        """Count one more token after `cursor`; return the new cursor and the number of links walked."""
        after = self._extend(cursor, token)
        link, count, best, following = self.link, self.count, self.best, self.next
        count[ROOT] += 1
        state, before, num_links = cursor, -1, 0
        while state >= 0:
            moves = following[state]
            target = moves[token]
            if target != before:
                count[target] += 1
                before = target
            favourite = best[state]
            if favourite != token:
                num, most = count[target], count[moves[favourite]] if favourite >= 0 else 0
                if num > most or (num == most and token < favourite):
                    best[state] = token
            state = link[state]
            num_links += 1
        return after, num_links

    def remove(self, cursor: int, tokens: Sequence[int]) -> int:
        """Take back what appending `tokens` after `cursor` counted; return the cursor after them."""
        link, count = self.link, self.count
        touched: set[int] = set()
        for token in tokens:
            count[ROOT] -= 1
            state = cursor
            while state >= 0:
                touched.add(state)
                state = link[state]
            cursor = state = self.next[cursor][token]
            while state > ROOT:
                count[state] -= 1
                state = link[state]
        for state in touched:
            self.best[state] = self._find_best(state)
        return cursor

    def find(self, context: Sequence[int]) -> tuple[int, int]:
        """Return the state of the longest end of `context` that occurs, and that end's length."""
        following, link, length = self.next, self.link, self.length
        state, num = ROOT, 0
        for token in context:
            while state > ROOT and token not in following[state]:
                state = link[state]
                num = length[state]
            if token in following[state]:
                state, num = following[state][token], num + 1
        while state > ROOT and not self.count[state]:
            state = link[state]
            num = length[state]
        return state, num

    def _find_best(self, state: int) -> int:
        ranked = [(-self.count[target], token) for token, target in self.next[state].items() if self.count[target]]
        return min(ranked)[1] if ranked else -1

    def _extend(self, cursor: int, token: int) -> int:
        """Make the state of the cursor's text and `token`, with all links and moves to it, and count nothing."""
        following, link, length = self.next, self.link, self.length
        known = following[cursor].get(token)
        if known is not None:
            return known if length[known] == length[cursor] + 1 else self._split(cursor, token, known)
        after = self._add(length[cursor] + 1, ROOT, 0, -1, {})
        state = cursor
        while state >= 0 and token not in following[state]:
            following[state][token] = after
            state = link[state]
        if state >= 0:
            known = following[state][token]
            link[after] = known if length[known] == length[state] + 1 else self._split(state, token, known)
        return after

    def _split(self, state: int, token: int, known: int) -> int:
        """Give the substrings of `known` that are no longer than the state's with `token` a state of their own."""
        following, link = self.next, self.link
        part = self._add(self.length[state] + 1, link[known], self.count[known], self.best[known], following[known].copy())
        link[known] = part
        while state >= 0 and following[state].get(token) == known:
            following[state][token] = part
            state = link[state]
        return part

    def _add(self, length: int, link: int, count: int, best: int, following: dict[int, int]) -> int:
        self.length.append(length)
        self.link.append(link)
        self.count.append(count)
        self.best.append(best)
        self.next.append(following)
        return len(self.link) - 1
