"""How often drafted tokens are accepted, measured as they are verified, apart for the tail and the rest.

- A position is tried when all before it on its path were accepted; so `rate(position)` is the beta_i of Seer (arXiv 2511.14617).
  Where a tree has several tokens for one place it is that of the likeliest; the others are measured by rank, wherever they are.
- What was drawn tells of every token drafted for its place, verified or not: so whether further paths would pay is known before any
  is tried.
- A guess after a long match holds more often than one after a short one, and a sure one may be sure for want of examples: so what
  is likeliest for its place is measured by the length of what is matched, with the tokens before it, and by its probability; and
  its position corrects the rest.
- Old trials are forgotten exponentially: one among the last `WINDOW` counts, roughly.
- A draft's own probabilities are counts, not the policy's; `calibrate` scales each conditional probability by accepted over
  predicted at its position. Before anything is measured a prior of `PRIOR_TRIALS` trials says the predictions are right.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from plait.drafting.draft_tree import MAX_PATHS, ROOT, DraftTree

GAMMA_MAX = 8
"""Longest draft that is verified."""
WINDOW = 128
PRIOR_TRIALS = 4
PRIOR_RATE = 0.5
MATCH_TOKENS = (4, 12)
PROBABILITIES = (0.45, 0.85)
"""Bounds of short, middling and long matches, and of what is thought unlikely, likely and sure."""
NUM_KINDS = (len(MATCH_TOKENS) + 1) * (len(PROBABILITIES) + 1)


@dataclass(slots=True)
class _Position:
    tried: float = 0.0
    predicted: float = 0.0
    accepted: float = 0.0
    scale: float = 1.0
    """Accepted over predicted."""

    def observe(self, predicted: float, accepted: bool) -> None:
        keep = 1 - 1 / WINDOW
        self.tried = self.tried * keep + 1
        self.predicted = self.predicted * keep + predicted
        self.accepted = self.accepted * keep + accepted
        self.scale = (self.accepted + PRIOR_TRIALS * PRIOR_RATE) / (self.predicted + PRIOR_TRIALS * PRIOR_RATE)

    @property
    def rate(self) -> float:
        return (self.accepted + PRIOR_TRIALS * PRIOR_RATE) / (self.tried + PRIOR_TRIALS)


@dataclass(slots=True)
class _Measured:
    kinds: list[_Position]
    """By length of match and probability; the tail and the rest have them in common."""
    positions: list[_Position] = field(default_factory=lambda: [_Position() for _ in range(GAMMA_MAX)])
    others: list[_Position] = field(default_factory=lambda: [_Position() for _ in range(MAX_PATHS - 1)])

    def at(self, depth: int, rank: int) -> _Position:
        return self.others[min(rank, MAX_PATHS - 1) - 1] if rank else self.positions[depth]

    def kind(self, match_tokens: int, probability: float) -> _Position:
        place = bisect_right(MATCH_TOKENS, match_tokens) * (len(PROBABILITIES) + 1) + bisect_right(PROBABILITIES, probability)
        return self.kinds[place]

    def chance(self, tree: DraftTree, depth: int, rank: int, probability: float) -> float:
        """That a token is accepted, given the ones before; the drafter says `probability`."""
        if not rank:
            probability = min(1.0, probability * self.kind(tree.match_tokens + depth, probability).scale)
        return min(1.0, probability * self.at(depth, rank).scale)

    def observe(self, tree: DraftTree, depth: int, rank: int, probability: float, accepted: bool) -> None:
        predicted = probability
        if not rank:
            kind = self.kind(tree.match_tokens + depth, probability)
            predicted = min(1.0, probability * kind.scale)
            kind.observe(probability, accepted)
        self.at(depth, rank).observe(predicted, accepted)


class Acceptance:
    """Measured acceptance of each draft position, counted from 0, and of each rank among the tokens for one place."""

    def __init__(self) -> None:
        kinds = [_Position() for _ in range(NUM_KINDS)]
        self._measured = {is_tail: _Measured(kinds) for is_tail in (False, True)}

    def observe(self, tree: DraftTree, drawn: Sequence[int], is_tail: bool = False) -> None:
        """Take what a row drew, and all that was drafted for it."""
        measured, node = self._measured[is_tail], ROOT
        children = _children(tree)
        for depth, token in enumerate(drawn[:GAMMA_MAX]):
            found = ROOT
            for rank, child in enumerate(children.get(node, ())):
                measured.observe(tree, depth, rank, _conditional(tree, child), tree.tokens[child] == token)
                found = child if tree.tokens[child] == token else found
            if found == ROOT:
                break
            node = found

    def rate(self, position: int, is_tail: bool = False) -> float:
        """Return beta at a position: the share accepted of those whose predecessors were."""
        return self._measured[is_tail].positions[position].rate

    def other_rate(self, rank: int, is_tail: bool = False) -> float:
        """Return the share accepted of the tokens that were second (rank 1), third, ... for their place."""
        return self._measured[is_tail].others[rank - 1].rate

    def calibrate(self, tree: DraftTree, is_tail: bool = False) -> tuple[float, ...]:
        """Return the chance that all tokens up to each node are accepted; it never rises to a child, and those of a node's children
        are together no more than its own. 0 from `GAMMA_MAX` tokens on."""
        if not tree.tokens:
            return ()
        measured = self._measured[is_tail]
        if tree.num_first == len(tree):
            return _along(measured, tree)
        found, left = [0.0] * len(tree), dict.fromkeys(range(ROOT, len(tree)), 1.0)
        for node, children in _children(tree).items():
            for rank, child in enumerate(children):
                if tree.depths[child] < GAMMA_MAX:
                    chance = min(measured.chance(tree, tree.depths[child], rank, _conditional(tree, child)), left[node])
                    left[node] -= chance
                    found[child] = chance * (found[node] if node != ROOT else 1.0)
        return tuple(found)


def _along(measured: _Measured, tree: DraftTree) -> tuple[float, ...]:
    """The same for a single path, by far the most frequent case."""
    path, before, found = 1.0, 1.0, []
    for depth, here in enumerate(tree.probabilities[:GAMMA_MAX]):
        path *= measured.chance(tree, depth, 0, here / before)
        before = here
        found.append(path)
    return tuple(found) + (0.0,) * (len(tree) - len(found))


def _children(tree: DraftTree) -> dict[int, list[int]]:
    """The children of each node that has any, the likeliest first, parents before children."""
    found: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents):
        found.setdefault(parent, []).append(node)
    for parent, children in found.items():
        if len(children) > 1:
            found[parent] = sorted(children, key=lambda node: (-tree.probabilities[node], node))
    return dict(sorted(found.items()))


def _conditional(tree: DraftTree, node: int) -> float:
    """The drafter's probability of a token given the ones before."""
    parent = tree.parents[node]
    return tree.probabilities[node] / (tree.probabilities[parent] if parent != ROOT else 1.0)
