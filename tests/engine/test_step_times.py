"""The profile of step times."""

from itertools import count

from plait.drafting.target_time import SEVERAL_PATHS, TargetTime
from plait.engine.step_times import ROWS, WIDTHS, measure_step_times
from tests.engine.tiny import model


def test_every_pair_is_measured() -> None:
    ticks = count()
    found = measure_step_times(model().decoder, lambda: 0.5 * next(ticks), max_rows=6, num_keys=32, repeats=1)
    pairs = [(rows, width) for rows in (*ROWS[:2], 6) for width in WIDTHS]
    assert found == dict.fromkeys([*pairs, (1, SEVERAL_PATHS), (4, SEVERAL_PATHS)], 0.5)
    assert TargetTime(found).seconds(3, 9) == 0.5
