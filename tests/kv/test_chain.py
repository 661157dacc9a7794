"""The keys of a sequence: each block is named by all before it."""

from hypothesis import given
from hypothesis import strategies as st

from plait.kv.chain import Link, chain, next_links
from plait.kv.keys import block_key

ROOT = b"root-of-tenant-a"
TOKENS = st.lists(st.integers(0, 9), max_size=14).map(tuple)


@given(TOKENS)
def test_links_cover_the_sequence(tokens: tuple[int, ...]) -> None:
    links = list(chain(ROOT, tokens, 4))
    parent, start = ROOT, 0
    for link in links:
        assert (link.parent, link.start) == (parent, start)
        assert link.key == block_key(parent, tokens[link.start : link.end])
        parent, start = link.key, link.end
    assert start == len(tokens)
    assert all(link.num_tokens == 4 for link in links[:-1])


@given(TOKENS, st.integers(0, 3))
def test_a_chain_may_begin_in_the_middle(tokens: tuple[int, ...], block: int) -> None:
    whole = list(chain(ROOT, tokens, 4))
    block = min(block, max(0, len(whole) - 1))
    parent = whole[block - 1].key if block else ROOT
    assert list(chain(parent, tokens, 4, 4 * block)) == whole[block:]


def test_next_links_are_the_longest_first() -> None:
    links = list(next_links(ROOT, (1, 2, 3, 4, 5, 6), 4, 0))
    assert [link.num_tokens for link in links] == [4, 3, 2, 1]
    assert links[2].key == block_key(ROOT, (1, 2))
    assert [link.num_tokens for link in next_links(ROOT, (1, 2, 3, 4, 5, 6), 4, 4)] == [2, 1]


@given(
    st.builds(Link, st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16), st.integers(0, 9), st.integers(1, 4))
)
def test_links_are_packed_whole(link: Link) -> None:
    assert Link.unpack(b"xx" + link.pack(), 2) == link
