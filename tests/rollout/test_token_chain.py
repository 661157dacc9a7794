"""However a generation grows, its keys are those that an engine gives its blocks."""

from hypothesis import given
from hypothesis import strategies as st

from plait.kv.chain import chain
from plait.rollout.token_chain import TokenChain

ROOT, BLOCK = b"root-of-tenant-a", 4


@given(
    context=st.lists(st.integers(0, 9), max_size=20),
    drawn=st.lists(st.integers(0, 9), max_size=30),
    cuts=st.sets(st.integers(0, 30)),
)
def test_growing_equals_hashing_anew(context: list[int], drawn: list[int], cuts: set[int]) -> None:
    grown = TokenChain(ROOT, BLOCK)
    for cut in [*sorted(cut for cut in cuts if cut < len(drawn)), len(drawn)]:
        grown.grow(context, drawn[:cut])
        grown = grown.copy()
    tokens = tuple(context + drawn)[:-1]
    links = list(chain(ROOT, tokens, BLOCK))
    assert grown.keys == [link.key for link in links]
    assert [grown.tokens(number + 1) for number in range(len(links))] == [link.end for link in links]
    assert grown.num_tokens == len(tokens)
