"""Engines in the summary, the live view and the report."""

import io

from rich.console import Console

from plait.observe import events as e
from plait.observe.live_table import render_run
from plait.observe.report.report import build_report
from plait.observe.summary import RunSummary
from tests.observe.sample_run import START_S, sample_events


def sample(time_s: float, **fields: object) -> e.EngineSample:
    values = {"engine": "rollout-0", "num_rows": 4, "reserved_tokens": 100, "cache_tokens": 400} | fields
    return e.EngineSample(time_s=START_S + time_s, **values)  # type: ignore[arg-type]


def test_moves_and_counters_add_up_over_a_lost_process_and_the_state_is_the_latest() -> None:
    summary = RunSummary([
        sample(1, num_moves=3, counters={"drafted_tokens": 10.0, "accepted_tokens": 5.0}),
        sample(2, num_moves=4, counters={"drafted_tokens": 4.0, "accepted_tokens": 2.0}, reserved_tokens=300),
        sample(3, num_moves=1, num_rows=0, reserved_tokens=0, num_queued=2),
    ])  # fmt: skip
    (engine,) = summary.snapshot(START_S + 4).engines
    assert engine.num_moves == 5
    assert engine.counters == {"drafted_tokens": 14.0, "accepted_tokens": 7.0}
    assert (engine.num_rows, engine.num_queued, engine.reserved_share) == (0, 2, 0.0)
    assert (engine.reserved_share_mean, engine.acceptance) == (0.5, 0.5)
    assert engine.hit_share is None


def test_status_has_a_line_for_each_engine() -> None:
    summary = RunSummary(sample_events(num_steps=3, resume_after=None))
    stream = io.StringIO()
    Console(file=stream, width=140).print(render_run(summary.snapshot(START_S + 20), 140, 100))
    (line,) = [line for line in stream.getvalue().splitlines() if "reserved" in line]
    for part in ("rollout-0: idle", "24 rows", "reserved 75 %", "hits 75 %", "2 moves", "accepted 75 % of drafts of 4.0"):
        assert part in line, line


def test_pulls_are_shown_where_there_were_any() -> None:
    counters = {"pulls": 2.0, "pulled_bytes": 1.5 * 2**20, "device_hit_tokens": 1.0}
    events = [*sample_events(num_steps=1, resume_after=None), sample(19, engine="rollout-9", counters=counters)]
    stream = io.StringIO()
    Console(file=stream, width=140).print(render_run(RunSummary(events).snapshot(START_S + 20), 140, 100))
    lines = [line for line in stream.getvalue().splitlines() if "reserved" in line]
    assert ["2 pulls of 1.5 MiB" in line for line in lines] == ["rollout-9" in line for line in lines]
    assert "100 %, 2 pulls of 1.5 MiB" in build_report(list(events))


def test_the_report_has_engines_and_tails() -> None:
    html = build_report(list(sample_events(num_steps=3, resume_after=None)))
    section = html.split('<section id="engines">')[1].split("</section>")[0]
    for part in ("rollout-0", "75 %", "device 50 %, host 25 %", "The last tenth", "word_sorting", "25 %"):
        assert part in section, section
    assert '<section id="engines">' not in build_report([e.RunEnded(time_s=START_S, status="done")])
