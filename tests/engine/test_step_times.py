"""The profile of step times."""

from itertools import count

import torch

from plait.drafting.target_time import SEVERAL_PATHS, TargetTime
from plait.engine.step_times import ROWS, WIDTHS, measure_step_times, token_step_of
from plait.models.kernels import pad_rows
from tests.engine.tiny import model


def test_every_pair_is_measured() -> None:
    ticks = count()
    found = measure_step_times(model().decoder, lambda: 0.5 * next(ticks), max_rows=6, num_keys=32, repeats=1)
    pairs = [(rows, width) for rows in (*ROWS[:2], 6) for width in WIDTHS]
    assert found == dict.fromkeys([*pairs, (1, SEVERAL_PATHS), (4, SEVERAL_PATHS)], 0.5)
    assert TargetTime(found).seconds(3, 9) == 0.5


def test_a_model_computes_a_multiple_of_the_token_step() -> None:
    step = token_step_of(model().decoder)
    assert [len(pad_rows(torch.zeros(num, 8))) for num in (1, step, step + 1)] == [step, step, 2 * step]
