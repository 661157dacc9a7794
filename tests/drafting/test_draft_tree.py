"""Trees of drafts against the paths that they are made of."""

from hypothesis import given
from hypothesis import strategies as st

from plait.drafting.draft import Draft
from plait.drafting.draft_tree import ROOT, DraftTree, merged, tree_of

PATHS = st.lists(st.lists(st.integers(-1, 3), max_size=6).map(tuple), max_size=5)


def prefixes(paths: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    return {path[:end] for path in paths for end in range(1, len(path) + 1)}


def text(tree: DraftTree, node: int) -> tuple[int, ...]:
    return tuple(tree.tokens[n] for n in tree.path(node))


@given(PATHS)
def test_what_paths_share_is_there_once(paths: list[tuple[int, ...]]) -> None:
    tree = tree_of(paths)
    assert sorted(text(tree, node) for node in range(len(tree))) == sorted(prefixes(paths))
    assert all(parent < node for node, parent in enumerate(tree.parents))
    assert tree.depths == tuple(len(tree.path(node)) - 1 for node in range(len(tree)))
    assert tree.depth == max(map(len, paths), default=0)
    first = next((path for path in paths if path), ())
    assert tree.tokens[: len(first)] == first
    assert tree.path(tree.num_first - 1) == list(range(tree.num_first)) if len(tree) else tree.num_first == 0
    assert len(tree.starts) <= max(0, len(set(paths)) - 1)


@given(PATHS, st.lists(st.integers(-1, 3), max_size=8))
def test_the_longest_beginning_of_what_is_drawn_comes_true(paths: list[tuple[int, ...]], drawn: list[int]) -> None:
    tree = tree_of(paths)
    wanted = max((end for end in range(len(drawn) + 1) if not end or tuple(drawn[:end]) in prefixes(paths)), default=0)
    nodes = tree.follow(drawn)
    assert len(nodes) == wanted
    assert all(text(tree, node) == tuple(drawn[: place + 1]) for place, node in enumerate(nodes))


@given(PATHS, st.data())
def test_a_part_of_a_tree_is_the_tree_of_its_paths(paths: list[tuple[int, ...]], data: st.DataObject) -> None:
    tree = tree_of(paths)
    leaves = data.draw(st.lists(st.integers(0, len(tree) - 1), max_size=4)) if len(tree) else []
    nodes = sorted({node for leaf in leaves for node in tree.path(leaf)})
    picked = tree.pick(nodes)
    assert [text(picked, i) for i in range(len(picked))] == [text(tree, node) for node in nodes]


@given(PATHS, st.integers(0, 5), st.integers(1, 3))
def test_a_cut_leaves_what_may_be_verified(paths: list[tuple[int, ...]], most: int, max_paths: int) -> None:
    tree = tree_of(paths).cut(most, max_paths, 3)
    known = {path for path in prefixes(paths) if len(path) <= most and all(0 <= token < 3 for token in path)}
    found = [text(tree, node) for node in range(len(tree))]
    assert set(found) <= known
    assert len(tree.starts) < max_paths
    if len(tree_of(known).starts) == 0:
        assert set(found) == known
    assert all(parent == ROOT or parent < node for node, parent in enumerate(tree.parents))


def test_probabilities_go_with_their_tokens() -> None:
    tree = merged([Draft((1, 2, 3), (0.8, 0.5, 0.4)), Draft((1, 4), (0.8, 0.3)), Draft((5,), (0.1,))])
    assert dict(zip(tree.tokens, tree.probabilities, strict=True)) == {1: 0.8, 2: 0.5, 3: 0.4, 4: 0.3, 5: 0.1}
    assert tree.starts == [3, 4]
    assert tree.pick([0, 3]).probabilities == (0.8, 0.3)
    assert tree.pick([0, 3]).num_first == 2
    assert merged([Draft((7, 8), (0.9, 0.2))]) == DraftTree((7, 8), (-1, 0), (0.9, 0.2))
