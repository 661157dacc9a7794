"""When an engine reports, and which of its reports become events."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from plait.cluster.engine_reporter import REPORT_EVERY_S, EngineReporter
from plait.cluster.engine_sampler import EVERY_S, IDLE_EVERY_S, EngineSampler
from plait.observe.events import EngineSample

gaps_s = st.lists(st.floats(0.001, 3.0), min_size=1, max_size=60)


@given(gaps_s)
def test_reports_come_at_most_once_a_second_and_the_end_of_work_is_told(gaps_s: list[float]) -> None:
    reporter, now_s, reported_s, told = EngineReporter(), 100.0, [0.0], False
    assert not reporter.goes_idle()
    for gap_s in gaps_s:
        now_s += gap_s
        told = reporter.worked(now_s)
        if told:
            reported_s.append(now_s)
    assert all(later - earlier >= REPORT_EVERY_S for earlier, later in itertools.pairwise(reported_s))
    assert reporter.goes_idle() == (not told)
    assert not reporter.goes_idle()


def sample(time_s: float, engine: str, num_rows: int) -> EngineSample:
    return EngineSample(time_s=time_s, engine=engine, num_rows=num_rows, reserved_tokens=0, cache_tokens=1)


@given(st.lists(st.tuples(st.floats(0.0, 4.0), st.sampled_from("ab"), st.integers(0, 2)), max_size=60))
def test_events_are_sparse_and_end_with_the_latest(reports: list[tuple[float, str, int]]) -> None:
    sampler, now_s = EngineSampler(), 100.0
    told: dict[str, list[EngineSample]] = {"a": [], "b": []}
    for gap_s, engine, num_rows in reports:
        now_s += gap_s
        event = sampler.take(sample(now_s, engine, num_rows))
        told[engine] += [event] if event else []
    for events in told.values():
        for earlier, later in itertools.pairwise(events):
            assert later.time_s - earlier.time_s >= (EVERY_S if later.num_rows else IDLE_EVERY_S)
    for event in sampler.flush():
        told[event.engine].append(event)
    assert {engine: events[-1] for engine, events in told.items() if events} == sampler.latest
    assert sampler.flush() == []
