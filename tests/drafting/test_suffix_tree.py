"""The suffix tree against an oracle that scans all sequences, and its rules one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from plait.drafting import suffix_tree
from plait.drafting.draft import NO_DRAFT
from plait.drafting.suffix_tree import SuffixTree
from tests.drafting.slow_tree import SlowTree

DEPTH = 6
NAMES = st.sampled_from("abcd")
TOKENS = st.lists(st.integers(0, 2), max_size=8).map(tuple)
"""Three tokens only, so that sequences repeat each other often."""
APPENDS = st.lists(st.tuples(NAMES, TOKENS), max_size=12)


class GrowingTree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree, self.oracle = SuffixTree(DEPTH), SlowTree(DEPTH)

    @rule(name=NAMES, tokens=TOKENS)
    def append(self, name: str, tokens: tuple[int, ...]) -> None:
        self.tree.append(name, tokens)
        self.oracle.append(name, tokens)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.tree.remove(name)
        self.oracle.sequences.pop(name, None)

    @rule(context=TOKENS, max_tokens=st.integers(1, 4), least=st.sampled_from([0.1, 0.4]))
    def speculate(self, context: tuple[int, ...], max_tokens: int, least: float) -> None:
        assert self.tree.speculate(context, max_tokens, least) == self.oracle.speculate(context, max_tokens, least)

    @rule(name=NAMES, max_tokens=st.integers(1, 4))
    def speculate_end(self, name: str, max_tokens: int) -> None:
        if name in self.oracle.sequences:
            expected = self.oracle.speculate(self.oracle.sequences[name], max_tokens, 0.1)
            found = self.tree.speculate_end(name, max_tokens)
            assert (found.tokens, found.probabilities) == (expected.tokens, expected.probabilities)

    @rule(context=TOKENS, max_tokens=st.integers(1, 4), num_paths=st.integers(1, 4))
    def speculate_paths(self, context: tuple[int, ...], max_tokens: int, num_paths: int) -> None:
        paths = self.tree.speculate_paths(context, max_tokens, num_paths)
        assert len({path.tokens for path in paths}) == len(paths) <= num_paths
        scores = [round(path.score, 9) for path in paths]
        assert scores == sorted(scores, reverse=True)
        for path in paths:
            text = context[len(context) - path.match_tokens :]
            counts = [self.oracle.count(text + path.tokens[: end + 1]) for end in range(len(path.tokens))]
            assert path.probabilities == tuple(num / self.oracle.count(text) for num in counts)

    @invariant()
    def holds_the_same_tokens(self) -> None:
        assert {name: self.tree.tokens(name) for name in self.tree} == self.oracle.sequences
        assert self.tree.num_tokens == sum(map(len, self.oracle.sequences.values()))


class CuttingTree(GrowingTree):
    """The same where segments are cut at nearly every token and the tree is built anew after nearly every removal."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(suffix_tree, "MAX_CHAIN", -5)
        self.patch.setattr(suffix_tree, "MIN_GARBAGE_TOKENS", 4)

    def teardown(self) -> None:
        self.patch.undo()


TestGrowingTree = GrowingTree.TestCase
TestCuttingTree = CuttingTree.TestCase
TestGrowingTree.settings = TestCuttingTree.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


@given(APPENDS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_in_which_sequences_come_does_not_matter(appends: list[tuple[str, tuple[int, ...]]], random: object) -> None:
    one, other = SuffixTree(DEPTH), SuffixTree(DEPTH)
    for name, tokens in appends:
        one.append(name, tokens)
    for name in sorted({name for name, _ in appends}, reverse=True):
        for token in one.tokens(name):
            other.append(name, (token,))
    for context in [one.tokens(name) for name in one]:
        assert one.speculate(context, 3) == other.speculate(context, 3)
        assert one.speculate_paths(context, 3, 3) == other.speculate_paths(context, 3, 3)


def test_a_match_never_runs_across_two_sequences() -> None:
    tree = SuffixTree()
    tree.append("a", (1, 2, 3))
    tree.append("b", (4, 5, 6))
    assert tree.speculate((2, 3), 4) == NO_DRAFT
    assert tree.speculate((3, 4), 4).tokens == (5, 6)
    assert tree.speculate((3, 4), 4).match_tokens == 1


def test_siblings_that_agree_raise_the_score() -> None:
    def score(num_siblings: int) -> float:
        tree = SuffixTree()
        for sibling in range(num_siblings):
            tree.append(sibling, (1, 2, 3, 4, 5, 6, 7, 8))
        tree.append("own", (1, 2, 3))
        return tree.speculate_end("own", 4).score

    assert 0 == score(0) < score(1) < score(3) < score(15)


def test_the_oldest_sequences_go_first() -> None:
    tree = SuffixTree(depth=4, max_tokens=10)
    for name in "abc":
        tree.append(name, (1, 2, 3, 4))
    assert list(tree) == ["b", "c"]
    tree.append("b", (5, 6, 7))
    assert list(tree) == ["b"]
    assert tree.num_tokens == 7


@given(APPENDS, st.integers(DEPTH, 20))
@settings(max_examples=60, deadline=None)
def test_what_is_held_within_the_bound_is_counted_exactly(appends: list[tuple[str, tuple[int, ...]]], max_tokens: int) -> None:
    tree = SuffixTree(DEPTH, max_tokens)
    for name, tokens in appends:
        tree.append(name, tokens)
        assert tree.num_tokens <= max_tokens
    oracle = SlowTree(DEPTH, {str(name): tree.tokens(name) for name in tree})
    for context in [(0,), (1, 0), (2, 1, 2), *oracle.sequences.values()]:
        assert tree.speculate(context, 3) == oracle.speculate(context, 3, 0.1)


def test_one_sequence_beyond_the_bound_loses_its_head() -> None:
    tree = SuffixTree(depth=4, max_tokens=10)
    for token in range(40):
        tree.append("a", (token,))
        assert tree.num_tokens <= 10
    assert tree.speculate((34, 35), 2).tokens == (36, 37)
    assert tree.speculate((3, 4), 2) == NO_DRAFT


def test_repetition_without_end_stays_cheap() -> None:
    tree = SuffixTree()
    tree.append("a", (1,) * 3000)
    assert tree._automaton.num_states < 700
    assert tree.speculate_end("a", 8).tokens == (1,) * 8


def test_bounds_are_checked() -> None:
    with pytest.raises(ValueError, match="depth is 1"):
        SuffixTree(depth=1)
