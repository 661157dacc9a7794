"""What the benchmark of training processes makes of its rows."""

from typing import Any

from benchmarks.trainers import BATCHES, SEQUENCE_TOKENS, _datums, headlines_of


def row(trainers: int, updates_per_s: float, share: float) -> dict[str, Any]:
    return {"trainers": trainers, "updates_per_s": updates_per_s, "processor_share": share}


def test_the_fastest_round_of_each_counts() -> None:
    rows = [row(1, 0.2, 0.7), row(2, 0.5, 0.9), row(1, 0.3, 0.9), row(2, 0.54, 0.95)]
    (found,) = headlines_of(rows).values()
    assert (round(found["value"], 6), found["met"]) == (1.8, True)
    assert found["note"] == "processor share 1: 0.90, 2: 0.95"


def test_batches_differ_by_task_and_step_and_have_weights_that_sum_to_one() -> None:
    first, other, later = _datums("t0", 1, BATCHES[0]), _datums("t1", 1, BATCHES[0]), _datums("t0", 2, BATCHES[0])
    assert len({first, other, later}) == 3
    assert all(len(datum.tokens) == len(datum.target_tokens) == SEQUENCE_TOKENS for datum in first)
    assert abs(sum(weight for datum in first for weight in datum.weights) - 1) < 1e-9
