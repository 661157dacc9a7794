from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from plait.state.records import list_steps, read_record
from plait.state.retention import steps_to_remove, thin_records


@given(steps=st.sets(st.integers(0, 60)), every=st.integers(1, 12), protected=st.sets(st.integers(0, 60)))
def test_keeps_last_two_every_nth_and_what_is_needed(steps: set[int], every: int, protected: set[int]) -> None:
    kept = steps - set(steps_to_remove(steps, every, protected))
    assert set(sorted(steps)[-2:]) <= kept
    assert {step for step in steps if step % every == 0} <= kept
    assert steps & protected <= kept
    assert all(step % every == 0 or step in protected for step in sorted(kept)[:-2])


def test_thinning_removes_whole_records(tmp_path: Path, write: Callable[..., object]) -> None:
    for step in range(13):
        write(tmp_path, step)
    assert thin_records(tmp_path, 5, protected={7}) == [1, 2, 3, 4, 6, 8, 9]
    assert list_steps(tmp_path) == [0, 5, 7, 10, 11, 12]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [f"{step:06d}" for step in (0, 5, 7, 10, 11, 12)]
    assert all(read_record(tmp_path, step).step == step for step in list_steps(tmp_path))
    assert thin_records(tmp_path, 5, protected={7}) == []


@given(steps=st.sets(st.integers(0, 60)), protected=st.sets(st.integers(0, 60)))
def test_of_whole_models_the_last_two_stay_and_what_is_needed(steps: set[int], protected: set[int]) -> None:
    kept = steps - set(steps_to_remove(steps, None, protected))
    assert kept == set(sorted(steps)[-2:]) | (steps & protected)
