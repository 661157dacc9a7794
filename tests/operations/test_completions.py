from hypothesis import given
from hypothesis import strategies as st

from plait.operations.completions import CompletionFeed


@given(st.integers(0, 2**62), st.lists(st.one_of(st.integers(1, 4), st.none(), st.just(0)), max_size=40))
def test_every_end_is_told_once_to_who_moves_his_cursor_on(start: int, moves: list[int | None]) -> None:
    """A number adds so many ends; 0 is an answer that was lost; None one that came."""
    feed, cursor, added, told = CompletionFeed(start), start, 0, list[str]()
    for move in [*moves, None]:
        if move:
            for _ in range(move):
                feed.add(f"r{added}")
                added += 1
            continue
        answer = feed.after(cursor)
        if move is None:
            told, cursor = told + answer, feed.cursor
    assert told == [f"r{number}" for number in range(added)]
    assert feed.after(cursor) == []
    assert len(feed) == 0
