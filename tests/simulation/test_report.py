"""The report of a simulation: what it says is on record, it draws in a browser, and nothing hostile in it runs."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from plait.simulation.report import build_report
from plait.simulation.report.chart_data import MAX_BINS, chart_data, thin
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
    assert len(re.findall(r"<canvas", drawn.stdout)) == 2 + len(result.systems[0].series), "devices, series, slowdowns"
    assert "<title>golden - Plait simulation</title>" in drawn.stdout
    assert "CONSOLE" not in drawn.stderr, drawn.stderr
