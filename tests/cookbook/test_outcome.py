"""Expectations on what a recipe leaves."""

from pathlib import Path

from cookbook.curve import curve_svg
from cookbook.outcome import between, done_steps, falls, last_metrics, read_metrics, repeats, rises, some_above

ROWS = [{"step": 0, "a": 1.0}, {"step": 1, "a": 2.0}, {"step": 1, "b": 5.0}, {"step": 2, "a": 4.0}]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    assert read_metrics(file) == []
    file.write_text('{"step": 0}\n{"step": 1')
    assert read_metrics(file) == [{"step": 0}]


def test_only_rows_with_the_metric_are_steps() -> None:
    assert done_steps(ROWS, "a") == [0, 1, 2]
    assert done_steps(ROWS, "c") == []
    assert last_metrics(ROWS, ("a", "c")) == {"a": 4.0}


def test_between_wants_every_value_and_at_least_one() -> None:
    assert between("a", 1, 4)(ROWS) is None
    assert between("a", 1, 3)(ROWS) == "a is 4, not between 1 and 3"
    assert between("c", 1, 3)(ROWS) == "there is no metric c"


def test_changes() -> None:
    assert rises("a", 3)(ROWS) is None
    assert falls("a", 1)(ROWS) == "a changed by +3, expected -1"
    assert rises("b", 0)(ROWS) == "b was measured 1 times, which shows no change"
    assert some_above("a", 3.5)(ROWS) is None
    assert some_above("a", 4)(ROWS) == "no a is above 4: [1.0, 2.0, 4.0]"


def test_a_step_that_was_done_again_comes_to_the_same() -> None:
    assert repeats("a")(ROWS) == "no step was done twice: the resume was not tried"
    assert repeats("a")([*ROWS, {"step": 2, "a": 4.0}]) is None
    assert repeats("a")([*ROWS, {"step": 2, "a": 4.5}]) == "a of a step that was done again is 4.5, was 4.0"


def test_a_curve_has_a_point_for_each_value() -> None:
    svg = curve_svg([0.0, 0.5, 1.0], 2, "a < b")
    assert svg.count("<circle") == 3
    assert "a &lt; b" in svg
