"""Against a plain set of keys for each place, asked block by block."""

from hypothesis import given
from hypothesis import strategies as st

from plait.kv.chain import chain
from plait.rollout.prefix_index import PrefixIndex

BLOCK = 4
ROOT = b"root-of-tenant-a"
PLACES = (("device", "e0"), ("device", "e1"), ("host", ""))
sequences = st.lists(st.integers(0, 1), max_size=7 * BLOCK)
"""Many begin alike."""


def keys_of(tokens: list[int]) -> list[bytes]:
    return [link.key for link in chain(ROOT, tuple(tokens), BLOCK)]


def held_in_order(held: set[bytes], keys: list[bytes], start: int) -> int:
    """The oracle: one block after another."""
    while start < len(keys) and keys[start] in held:
        start += 1
    return start


events = st.lists(
    st.tuples(st.sampled_from(["store", "free", "lose"]), st.sampled_from(PLACES), sequences, st.integers(0, 7)), max_size=30
)


@given(events=events, asked=sequences, start=st.integers(0, 7))
def test_prefixes_are_found_as_far_as_they_reach(
    events: list[tuple[str, tuple[str, str], list[int], int]], asked: list[int], start: int
) -> None:
    """As in an engine's pool: a sequence is stored from its first block, and freed from its end."""
    index, plain = PrefixIndex(), {place: set[bytes]() for place in PLACES}
    for what, place, tokens, number in events:
        keys = keys_of(tokens)
        if what == "store":
            index.add(place, keys)
            plain[place] |= set(keys)
        elif what == "free":
            freed = [key for key in plain[place] if key not in keys[:number]]
            index.drop(place, [*freed, b"never was there "])
            plain[place] -= set(freed)
        else:
            index.lose(place)
            plain[place].clear()
    keys = keys_of(asked)
    for place in PLACES:
        assert index.num_blocks(place) == len(plain[place])
        assert index.reach(place, keys) == held_in_order(plain[place], keys, 0)
    begin = min(start, index.reach(PLACES[0], keys))
    assert index.reach(PLACES[2], keys, begin) == held_in_order(plain[PLACES[2]], keys, begin)


@given(held=st.sets(st.integers(0, 39)), start=st.integers(0, 40))
def test_where_there_are_gaps_the_answer_ends_at_one(held: set[int], start: int) -> None:
    keys = [number.to_bytes(16, "big") for number in range(40)]
    index = PrefixIndex()
    index.add(PLACES[2], [keys[number] for number in held])
    found = index.reach(PLACES[2], keys, start)
    assert found == start or found - 1 in held
    assert found == 40 or found not in held
    assert (found == start) == (start not in held)


def test_it_is_bounded_and_forgets_what_came_first() -> None:
    index, place = PrefixIndex(max_blocks=10), PLACES[0]
    keys = [number.to_bytes(16, "big") for number in range(25)]
    for number in range(0, 25, 5):
        index.add(place, keys[number : number + 5])
        assert index.num_blocks(place) <= 10
    assert index.reach(place, keys, 15) == 25
    assert index.reach(place, keys, 14) == 14
    index.drop(place, keys)
    assert index.places == []
