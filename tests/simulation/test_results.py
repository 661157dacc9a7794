"""The recorder: what goes in comes out, in bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.simulation.distribution import Distribution
from plait.simulation.results import Recorder

spans = st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 100)), max_size=40)


@given(spans)
def test_busy_time_is_kept_whole_whatever_the_bins(found: list[tuple[float, float]]) -> None:
    recorder = Recorder({"a": 3})
    for start_s, length_s in found:
        recorder.busy("a", start_s, start_s + length_s, 2)
    total = sum((start_s + length_s) - start_s for start_s, length_s in found) * 2
    end_s = max((start_s + length_s for start_s, length_s in found), default=0.0) + 1.0
    bin_s, (line,), _ = recorder.lines(end_s)
    widths = [min(bin_s, end_s - number * bin_s) for number in range(len(line.shares))]
    in_bins = sum(share * width * 3 for share, width in zip(line.shares, widths, strict=True))
    assert in_bins == pytest.approx(total, abs=1e-5 * 3 * end_s)
    assert line.utilisation == pytest.approx(total / (3 * end_s))
    assert len(line.shares) <= 512


@given(st.lists(st.tuples(st.floats(0.01, 50), st.floats(0, 10)), min_size=1, max_size=40))
def test_the_mean_of_a_value_is_its_integral_over_the_time(steps: list[tuple[float, float]]) -> None:
    recorder = Recorder({"a": 1})
    now_s = area = 0.0
    for length_s, value in steps:
        recorder.value("x", now_s, value)
        now_s += length_s
        area += length_s * value
    _, _, (line,) = recorder.lines(now_s)
    assert line.mean == pytest.approx(area / now_s, abs=1e-6)


def test_waits_and_counts() -> None:
    recorder = Recorder({"a": 1})
    for seconds in range(1, 101):
        recorder.wait("queue", float(seconds))
        recorder.count("steps")
    assert recorder.counts == {"steps": 100}
    summary = recorder.summary("queue")
    assert (summary.count, summary.mean, summary.largest) == (100, 50.5, 100.0)
    assert summary.p95 == pytest.approx(95, rel=0.06)
    assert recorder.summary("nothing").count == 0


def test_zeros_count_as_values() -> None:
    waits = Distribution()
    waits.add_zeros(6)
    for seconds in (10.0, 20.0, 30.0, 40.0):
        waits.add(seconds)
    assert (waits.quantile(0.5), waits.summary().mean) == (0.0, 10.0)
    assert waits.quantile(0.75) == pytest.approx(20.0, rel=0.05)
    waits.add_zeros(-6)
    assert waits.quantile(0.5) == pytest.approx(20.0, rel=0.05)
