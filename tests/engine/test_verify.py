"""Attention over the tokens of drafts, against attention over one sequence at a time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.drafting.draft_tree import DraftTree, tree_of
from plait.engine.drawing import accepted_run
from plait.engine.sampler import Draw
from plait.engine.verify import VerifyAttention
from plait.models.attention import PaddedAttention

LAYERS, KV_HEADS, GROUP, DIM, SLOT = 1, 2, 3, 16, 64

PATHS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=4)
BRANCHED = st.dictionaries(st.integers(0, 6), st.tuples(st.integers(0, 40), PATHS.map(tree_of)), min_size=1, max_size=4)


class Written:
    """What the model would compute for each token, by its row and the tokens before it: random, the same whenever it is asked."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.known: dict[tuple[int, tuple[int, ...]], torch.Tensor] = {}

    def __call__(self, place: int, path: tuple[int, ...]) -> torch.Tensor:
        if (place, path) not in self.known:
            shape = (GROUP * KV_HEADS + 2 * KV_HEADS, DIM)
            self.known[place, path] = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return self.known[place, path]

    def sequence(self, place: int, start: int, path: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        """q, k, v of a row's context up to position `start`, and of a path after it."""
        context = tuple(range(-start - 1, 0))
        tokens = [self(place, context[: i + 1]) for i in range(start + 1)]
        tokens += [self(place, (*context, *path[: i + 1])) for i in range(len(path))]
        return torch.stack(tokens).split((GROUP * KV_HEADS, KV_HEADS, KV_HEADS), dim=1)


@given(BRANCHED, st.integers(0, 99))
def test_each_path_meets_its_own_tokens(rows: dict[int, tuple[int, DraftTree]], seed: int) -> None:
    """As if it were the only one; and the path that comes true lies in its row's slot afterwards."""
    written, places = Written(seed), sorted(rows)
    starts, trees = [rows[place][0] for place in places], [rows[place][1] for place in places]
    data = torch.full((LAYERS, 2, 7, KV_HEADS, SLOT, DIM), 7.0, dtype=torch.float64)  # what is hidden is not seen
    wanted, fed = [], []
    for place, start, tree in zip(places, starts, trees, strict=True):
        ends = [(), *(tuple(tree.tokens[n] for n in tree.path(node)) for node in range(len(tree)))]
        for path in ends:
            q, k, v = written.sequence(place, start, path)
            plain = PaddedAttention(1, len(q), GROUP, torch.float64, torch.device("cpu"))
            wanted.append(plain(0, q, k, v)[-1])
            fed.append((q[-1], k[-1], v[-1]))
        data[0, 0, place, :, :start], data[0, 1, place, :, :start] = (part[:start].transpose(0, 1) for part in (k, v))
    attention = VerifyAttention(data, places, starts, trees, GROUP)
    q, k, v = (torch.stack(parts) for parts in zip(*fed, strict=True))
    torch.testing.assert_close(attention(0, q, k, v), torch.stack(wanted), atol=1e-6, rtol=1e-6)
    for index, (place, start, tree) in enumerate(zip(places, starts, trees, strict=True)):
        nodes = tree.path((seed + index) % len(tree)) if len(tree) else []
        attention.adopt(index, nodes)
        _, k, v = written.sequence(place, start, tuple(tree.tokens[node] for node in nodes))
        assert torch.equal(data[0, 0, place, :, : len(k)], k.transpose(0, 1))
        assert torch.equal(data[0, 1, place, :, : len(v)], v.transpose(0, 1))


@given(PATHS, st.lists(st.integers(0, 2), min_size=21, max_size=21))
def test_a_run_goes_on_while_the_tree_has_what_is_drawn(paths: list[list[int]], drawn: list[int]) -> None:
    """Against a search of all paths."""
    tree = tree_of(paths)
    drawn = drawn[: len(tree) + 1]
    after = {(): drawn[0]} | {tuple(tree.tokens[n] for n in tree.path(node)): drawn[node + 1] for node in range(len(tree))}
    path: tuple[int, ...] = ()
    while (*path, after[path]) in after:
        path = (*path, after[path])
    run = accepted_run(tree, Draw(drawn, [-float(i) for i in range(len(drawn))]))
    assert run.tokens == (*path, after[path])
    assert tuple(tree.tokens[node] for node in run.nodes) == path
    assert [drawn[int(-logprob)] for logprob in run.logprobs] == list(run.tokens)
    assert run.num_fed == 1 + max(tree.num_first, len(path))


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), min_size=9, max_size=9))
def test_a_run_ends_with_the_first_token_that_the_draft_lacks(draft: list[int], drawn: list[int]) -> None:
    drawn = drawn[: len(draft) + 1]
    run = accepted_run(tree_of([draft]), Draw(drawn, [-float(i) for i in range(len(drawn))]))
    count = len(run.tokens)
    assert run.tokens == tuple(drawn[:count])
    assert run.logprobs == tuple(-float(i) for i in range(count))
    assert drawn[: count - 1] == draft[: count - 1]
    assert count == len(draft) + 1 or drawn[count - 1] != draft[count - 1]
    assert run.num_fed == len(draft) + 1


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_a_drafted_run_with_what_is_not_a_number_is_not_taken(bad: float) -> None:
    assert accepted_run(tree_of([[1, 2]]), Draw([1, 3, 4], [0.0, bad, 0.0])).tokens == ()
    assert accepted_run(tree_of([[1, 2]]), Draw([1, 3, 4], [0.0, 0.0, bad])).tokens == (1, 3)
    assert accepted_run(tree_of([]), Draw([1], [bad])).tokens == (1,)
