"""Pieces in any order and number give back the sequence."""

from hypothesis import given
from hypothesis import strategies as st

from plait.drafting.token_log import MAX_WAITING_PIECES, TokenLog

TEXT = tuple(range(100, 120))
PIECES = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 6)), max_size=30)


@given(PIECES)
def test_every_token_comes_once_and_in_order(pieces: list[tuple[int, int]]) -> None:
    log = TokenLog()
    found: tuple[int, ...] = ()
    for start, num in pieces:
        found += log.add(start, TEXT[start : start + num])
        assert log.num_tokens == len(found)
        assert found == TEXT[: len(found)]
    covered = {start + i for start, num in pieces for i in range(num)}
    assert len(found) == next(i for i in range(100) if i not in covered or i == len(TEXT))


def test_pieces_beyond_a_gap_are_bounded() -> None:
    log = TokenLog()
    for start in range(1, 2 * MAX_WAITING_PIECES):
        assert log.add(start, (start,)) == ()
    assert log.add(0, (0,)) == tuple(range(MAX_WAITING_PIECES + 1))
    assert log.num_tokens == MAX_WAITING_PIECES + 1
