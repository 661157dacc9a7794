"""The report of a simulation: what it says is on record, it draws in a browser, and nothing hostile in it runs."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from plait.simulation.comparison import Comparison
from plait.simulation.report import build_report
from plait.simulation.report.bars import bar_sets
from plait.simulation.report.chart_data import MAX_BINS, MAX_SPANS, chart_data, thin
from plait.simulation.results import ScenarioResult
from tests.observe.test_report import CHROMIUM_FLAGS
from tests.simulation.golden_files import FOLDER, TEXTS, result_of, words

HOSTILE = "</script><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def result() -> ScenarioResult:
    return result_of("tasks")


@pytest.mark.parametrize("kind", TEXTS)
def test_what_it_says_is_on_record(kind: str) -> None:
    """`python -m tests.simulation.golden_files` records it anew."""
    assert words(build_report(result_of(kind))) == (FOLDER / f"{kind}.txt").read_text(encoding="utf-8")


def test_it_needs_nothing_from_elsewhere_and_says_the_same_again(result: ScenarioResult) -> None:
    page = build_report(result)
    assert page == build_report(result)
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", page.split("<script>")[0])
    assert page.count("<script>") == 2


def test_systems_stand_side_by_side_as_bars_and_their_works_over_time() -> None:
    result = result_of("jobs")
    sets = {bars.label: bars for bars in bar_sets(result)}
    assert {"device-hours per step", "held devices busy", "largest slowdown", "all jobs done after"} <= sets.keys()
    assert "jobs beyond their SLO" not in sets, "none is, anywhere"
    per_step = sets["device-hours per step"]
    assert [bar.system for bar in per_step.bars] == ["isolated", "pack"]
    assert max(bar.percent for bar in per_step.bars) == 100.0
    data = chart_data(result)
    assert [work["name"] for work in data["spans"][0]["works"]] == [f"small-000{number}" for number in range(1, 5)]
    assert [lane["name"] for lane in data["lanes"][:4]] == [f"node-000{number}" for number in range(4)], "of few nodes, each"


def test_of_many_works_some_are_drawn(result: ScenarioResult) -> None:
    system = result.systems[0]
    many = tuple(msgspec.structs.replace(system.works[0], name=f"{number:04}", arrival_s=float(number)) for number in range(1000))
    spans = chart_data(msgspec.structs.replace(result, systems=(msgspec.structs.replace(system, works=many),)))["spans"][0]
    assert (len(spans["works"]), spans["total"], spans["works"][1]["arrival"]) == (MAX_SPANS, 1000, 10.0)


def test_a_paper_and_what_was_assumed_are_on_the_page(result: ScenarioResult) -> None:
    paper = (Comparison("throughput", 1.4, 1.4, 1.47, 0.05),)
    text = words(build_report(msgspec.structs.replace(result, paper=paper, assumptions=("An engine is one device.",))))
    assert "throughput\n1.4\n1.47\n+5 %\n" in text
    assert "An engine is one device." in text


def test_what_a_scenario_says_is_text(result: ScenarioResult) -> None:
    system = msgspec.structs.replace(result.systems[0], name=HOSTILE)
    hostile = msgspec.structs.replace(result, title=HOSTILE, description=HOSTILE, systems=(system,))
    assert "<script>document.title" not in build_report(hostile)


def test_long_lines_are_thinned_and_keep_their_mean(result: ScenarioResult) -> None:
    means, bin_s = thin([1.0, 3.0] * 400, 2.0)
    assert (len(means) <= MAX_BINS, bin_s, set(means[:-1])) == (True, 8.0, {2.0})
    data = json.loads(json.dumps(chart_data(result)))
    assert [lane["name"] for lane in data["lanes"]] == ["rollout", "training", "all devices"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_draws_it_from_a_file(tmp_path: Path, result: ScenarioResult) -> None:
    path = tmp_path / "report.html"
    path.write_text(build_report(msgspec.structs.replace(result, description=HOSTILE)), encoding="utf-8")
    command = ["chromium", *CHROMIUM_FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
    drawn = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert len(re.findall(r"<canvas", drawn.stdout)) == 4 + len(result.systems[0].series), (
        "devices, series, slowdowns, tasks of both"
    )
    assert "<title>golden - Plait simulation</title>" in drawn.stdout
    assert "CONSOLE" not in drawn.stderr, drawn.stderr
