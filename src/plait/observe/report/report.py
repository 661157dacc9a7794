"""Builds `report.html`: one file with everything in it, that works from a disk without a network.

- What comes from a model, an environment or a setting is text: escaped in the page, and in the data for the charts.
- The page's content security policy lets only its own two scripts run, by their hashes, and nothing load.
- The numbers are in the HTML itself; scripts only draw.
"""

import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from plait.observe.events import AnyEvent
from plait.observe.report.curves import curve_data
from plait.observe.report.engines import engine_rows, tail_rows
from plait.observe.report.headline import figures, subtitle, task_headline
from plait.observe.report.history import RunHistory
from plait.observe.report.page import ECHARTS, HERE, STYLE, json_in_html, render
from plait.observe.report.problems import find_problems
from plait.observe.report.samples import TaskSamples, sample_views
from plait.observe.report.step_table import step_table
from plait.observe.report.time_axis import TimeAxis
from plait.observe.report.timeline import timeline_data
from plait.observe.report.utilisation import utilisation_data, worker_rows
from plait.observe.text import printable


def build_report(events: Iterable[AnyEvent], samples: Sequence[TaskSamples] = (), config_toml: str = "") -> str:
    """The page for a run, finished or not. `config_toml` is its effective settings as text."""
    history = RunHistory(events)
    now_s = history.summary.latest_s or 0.0
    axis = TimeAxis(history.sessions)
    run = history.summary.snapshot(now_s)
    data = {"curves": curve_data(history), "timeline": timeline_data(history, axis), "utilisation": utilisation_data(history, axis)}
    return render(
        HERE, "report.html.jinja", [ECHARTS, (HERE, "static", "report.js")], [STYLE],
        run=run,
        subtitle=subtitle(history, run),
        headlines=[task_headline(history, task) for task in run.tasks],
        figures=figures(history, run),
        workers=worker_rows(history, now_s),
        engines=engine_rows(run.engines),
        tails=tail_rows(history),
        gaps=axis.gaps,
        tables=[step_table(name, task.ordered_steps) for name, task in history.tasks.items()],
        samples=sample_views(_in_order(samples, list(history.tasks))),
        problems=find_problems(history, run),
        config=printable(config_toml),
        timeline=data["timeline"],
        data=json_in_html(data),
    )  # fmt: skip


def write_report(path: Path, html: str) -> None:
    """Replace the file at once, so that a browser never sees half of it. Any number of threads and processes may do so."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    temporary.write_text(html, encoding="utf-8")
    os.replace(temporary, path)


def _in_order(samples: Sequence[TaskSamples], tasks: list[str]) -> list[TaskSamples]:
    return sorted(samples, key=lambda sample: tasks.index(sample.task) if sample.task in tasks else len(tasks))
