"""What drafts are said to save, against two schedules played to their ends: with the tokens that came true, and without."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.drafting.saved_time import SavedTime
from plait.drafting.target_time import TargetTime

STEP_S, ROW_S = 0.05, 0.01


def line(step_s: float = STEP_S, row_s: float = ROW_S) -> TargetTime:
    return TargetTime({(rows, 1): step_s + row_s * rows for rows in (1, 16)})


def played(lengths: Sequence[int], jumps: Sequence[Sequence[int]], saved: SavedTime) -> tuple[float, float]:
    """Seconds of steps until all rows have drawn their tokens, where row i draws `jumps[i][k % len]` + 1 of them in its step k; and
    what was said to be saved meanwhile."""
    times, done, seconds, said = line(), [0] * len(lengths), 0.0, 0.0
    running = list(range(len(lengths)))
    for row in running:
        saved.start(str(row))
    step = 0
    while running:
        seconds += times.seconds(len(running), len(running))
        right = [min(jumps[row][step % len(jumps[row])], lengths[row] - done[row] - 1) for row in running]
        said += saved.take([str(row) for row in running], right)
        for row, num in zip(running, right, strict=True):
            done[row] += 1 + num
        for row in [row for row in running if done[row] == lengths[row]]:
            saved.end(str(row))
            running.remove(row)
        step += 1
    return seconds, said + saved.take((), ())


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    return lengths, [draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)) for _ in lengths]


@given(batches())
def test_no_more_is_said_to_be_saved_than_is(batch: tuple[list[int], list[list[int]]]) -> None:
    lengths, jumps = batch
    plain_s, nothing = played(lengths, [[0]] * len(lengths), SavedTime(line()))
    seconds, said = played(lengths, jumps, SavedTime(line()))
    assert nothing == 0
    assert 0 <= said <= plain_s - seconds + 1e-9


@given(st.integers(1, 6), st.integers(2, 30), st.integers(1, 3))
def test_rows_that_are_all_ahead_save_all_of_it(num_rows: int, length: int, jump: int) -> None:
    plain_s, _ = played([length] * num_rows, [[0]] * num_rows, SavedTime(line()))
    seconds, said = played([length] * num_rows, [[jump]] * num_rows, SavedTime(line()))
    assert said == pytest.approx(plain_s - seconds)


def test_a_row_ahead_of_others_saves_its_place_alone() -> None:
    saved = SavedTime(line())
    for row in "abc":
        saved.start(row)
    assert saved.take("abc", [2, 0, 0]) == pytest.approx(2 * ROW_S)
    assert SavedTime(line(row_s=0.0)).take("ab", [2, 0]) == 0


def test_where_others_take_the_places_each_row_saves_its_share() -> None:
    saved = SavedTime(line())
    for row in "abc":
        saved.start(row)
    said = saved.take("abc", [2, 0, 0])
    saved.end("a")
    saved.start("d")
    assert said + saved.take((), ()) == pytest.approx(2 * (STEP_S + 3 * ROW_S) / 3)
    saved.end("b")
    assert saved.take("cd", [1, 1]) == pytest.approx(STEP_S + 2 * ROW_S), "the new row is not behind the others"


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.floats(0, 1))
def test_a_token_of_all_rows_is_worth_a_step(leads: list[int], refilled: float) -> None:
    """And one of a row that is behind is worth more than one of a row that is ahead, unless others wait."""
    saved = SavedTime(line())
    names = [str(row) for row in range(len(leads))]
    for name in names:
        saved.start(name)
    saved.take(names, leads)
    worths = saved.worths(names, refilled)
    assert sum(worths) == pytest.approx(len(names))
    ranked = sorted(zip(leads, worths, strict=True))
    assert all(later[1] <= earlier[1] + 1e-9 for earlier, later in pairwise(ranked))
    assert saved.worths((), refilled) == []


def test_tokens_of_rows_that_others_follow_are_saved_at_once() -> None:
    saved, times = SavedTime(line()), line()
    for name in ("a", "b"):
        saved.start(name)
    assert saved.take(("a", "b"), (3, 0), refilled=1.0) == pytest.approx(3 * times.seconds(2, 2) / 2)
    saved.end("a")
    saved.start("c")
    assert saved.take((), ()) == pytest.approx(0.0), "they are not counted twice"
