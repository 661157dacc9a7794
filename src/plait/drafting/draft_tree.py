"""A row's draft as a tree of tokens: what its paths begin with in common is there once, and is verified once.

Nodes are numbered. A node comes after its parent (-1: the context itself), siblings have different tokens, and the nodes of the
first path come first: node n of it follows node n - 1. A further path adds the nodes that are its own, one after the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from plait.drafting.draft import Draft

ROOT = -1
MAX_PATHS = 4
"""Paths of one row that are verified at once (Seer, arXiv 2511.14617)."""


@dataclass(frozen=True)
class DraftTree:
    """`probabilities[n]`: the drafter's guess that all tokens up to node n come true, if it has any; it never rises to a child."""

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()
    match_tokens: int = 0
    """Length of the context's end that the drafter found."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def num_first(self) -> int:
        """Nodes of the first path."""
        return next((n for n, parent in enumerate(self.parents) if parent != n - 1), len(self.parents))

    @property
    def starts(self) -> list[int]:
        """The nodes that do not follow the node numbered before them: each begins what is a path's own. The first path's first
        node is not among them."""
        return [n for n, parent in enumerate(self.parents) if parent != n - 1]

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """0 for a token that follows the context."""
        found: list[int] = []
        for parent in self.parents:
            found.append(found[parent] + 1 if parent != ROOT else 0)
        return tuple(found)

    @property
    def depth(self) -> int:
        """Tokens of the longest path."""
        return max(self.depths, default=-1) + 1

    def path(self, node: int) -> list[int]:
        """The nodes that lead to a node, itself the last."""
        found = []
        while node != ROOT:
            found.append(node)
            node = self.parents[node]
        return found[::-1]

    def follow(self, drawn: Sequence[int]) -> tuple[int, ...]:
        """The nodes that come true, where `drawn[0]` is drawn after the context and each token after the ones before."""
        moves = {(parent, token): n for n, (parent, token) in enumerate(zip(self.parents, self.tokens, strict=True))}
        found: list[int] = []
        for token in drawn:
            node = moves.get((found[-1] if found else ROOT, token))
            if node is None:
                break
            found.append(node)
        return tuple(found)

    def pick(self, nodes: Sequence[int]) -> "DraftTree":
        """The tree of some nodes, in rising order, among them the parent of each."""
        if len(nodes) == len(self):
            return self
        place = {ROOT: ROOT} | {node: i for i, node in enumerate(nodes)}
        probabilities = tuple(self.probabilities[n] for n in nodes) if self.probabilities else ()
        return DraftTree(
            tuple(self.tokens[n] for n in nodes), tuple(place[self.parents[n]] for n in nodes), probabilities, self.match_tokens
        )

    def cut(self, max_tokens: int, max_paths: int, vocab_size: int) -> "DraftTree":
        """The tree without tokens too deep or unknown, and what follows them, and without paths too many."""
        kept: dict[int, None] = {}
        num_paths = 1
        for n, (token, parent, depth) in enumerate(zip(self.tokens, self.parents, self.depths, strict=True)):
            if depth >= max_tokens or not 0 <= token < vocab_size or (parent != ROOT and parent not in kept):
                continue
            is_start = parent != (next(reversed(kept)) if kept else ROOT)
            num_paths += is_start
            if num_paths > max_paths:
                break
            kept[n] = None
        return self.pick(list(kept))


NO_TREE = DraftTree()


def tree_of(paths: Iterable[Sequence[int]]) -> DraftTree:
    """The tree of some paths, of which nobody knows how probable they are."""
    return _merged((tuple(path), ()) for path in paths)


def merged(drafts: Sequence[Draft]) -> DraftTree:
    """The tree of a drafter's paths."""
    if len(drafts) == 1:
        parents = tuple(range(ROOT, len(drafts[0].tokens) - 1))
        return DraftTree(drafts[0].tokens, parents, drafts[0].probabilities, drafts[0].match_tokens)
    return replace(_merged((draft.tokens, draft.probabilities) for draft in drafts), match_tokens=drafts[0].match_tokens)


def _merged(paths: Iterable[tuple[tuple[int, ...], tuple[float, ...]]]) -> DraftTree:
    places: dict[tuple[int, int], int] = {}
    parents: list[int] = []
    chances: list[float] = []
    for tokens, probabilities in paths:
        node = ROOT
        for depth, token in enumerate(tokens):
            known = places.get((node, token))
            if known is None:
                known = places[node, token] = len(parents)
                parents.append(node)
                chances += probabilities[depth : depth + 1]
            node = known
    return DraftTree(tuple(token for _, token in places), tuple(parents), tuple(chances))
