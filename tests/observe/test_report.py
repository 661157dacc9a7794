import html
import json
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plait.observe import events as e
from plait.observe.report import TaskSamples, build_report, write_report
from plait.observe.report.timeline import MAX_SPANS
from tests.observe.sample_run import CONFIG, HOSTILE, START_S, sample_events, sample_record

CHROMIUM_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--window-size=1280,4000",
)  # fmt: skip


class Page(HTMLParser):
    """The elements, and the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            attributes = next(attributes for tag, attributes in reversed(self.tags) if tag == "script")
            self.scripts.append((attributes, data))
        elif not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def data(self) -> Any:
        return json.loads(next(content for attributes, content in self.scripts if attributes.get("id") == "data"))


def samples(task: str = "gcd") -> TaskSamples:
    return TaskSamples(
        task=task,
        first=[sample_record(task, 1, group, number, 0.0, f"wrong {HOSTILE}") for group in range(6) for number in range(2)],
        last=[sample_record(task, 20, group, number, 1.0, f"right {group}") for group in range(6) for number in range(2)],
        evaluation_first=[sample_record(task, 0, group, 0, 0.0, "no idea") for group in range(6)],
        evaluation_last=[sample_record(task, 20, group, 0, 1.0, "the solution") for group in reversed(range(6))],
    )


@pytest.fixture(scope="module")
def report() -> str:
    return build_report(sample_events(failing="word_sorting"), [samples("calculator"), samples()], CONFIG)


@pytest.fixture(scope="module")
def page(report: str) -> Page:
    return Page(report)


def test_sections_come_in_their_order(page: Page) -> None:
    sections = [attributes.get("id") for tag, attributes in page.tags if tag == "section"]
    assert sections == ["headline", "rewards", "timeline", "utilisation", "engines", "steps", "samples", "problems", "config"]


def test_the_headline_has_run_model_time_and_each_gain(page: Page) -> None:
    assert "demo done SmolLM2-135M-Instruct cpu, bfloat16 3 tasks 3 min" in page.text
    assert "resumed once" in page.text
    assert "gcd 9.4 % → 90.6 % +81.2 points held-out accuracy 20 of 20 steps" in page.text
    assert "3 errors" in page.text
    assert re.search(
        r"word_sorting failed 6\.2 % → - held-out accuracy 4 of 20 steps ZeroDivisionError: <b>division</b> by zero", page.text
    )


def test_curves_have_every_measured_point_and_no_other(page: Page) -> None:
    curves = {task["name"]: task for task in page.data["curves"]["tasks"]}
    assert [point[0] for point in curves["gcd"]["rewards"]] == list(range(1, 21))
    assert [point[0] for point in curves["calculator"]["rewards"]] == list(range(4, 21))
    assert curves["calculator"]["warm_start"] == [0, 3]
    assert curves["gcd"]["warm_start"] is None
    assert [point[0] for point in curves["gcd"]["accuracy"]] == [0, 5, 10, 15, 20]
    assert (page.data["curves"]["low"], page.data["curves"]["high"]) == (0, 1)


def test_the_timeline_has_a_lane_per_task_and_worker(page: Page) -> None:
    timeline = page.data["timeline"]
    assert [lane["name"] for lane in timeline["lanes"]] == ["gcd", "calculator", "word_sorting", "rollout-0", "train-0"]
    assert timeline["kinds"] == ["warm_start", "rollout", "environment", "queued", "training", "evaluation", "busy"]
    busy = timeline["kinds"].index("busy")
    assert {span[1] == busy for span in timeline["spans"] if span[0] >= 3} == {True}
    assert {span[1] == busy for span in timeline["spans"] if span[0] < 3} == {False}
    assert all(0 <= span[2] <= span[3] <= timeline["end"] for span in timeline["spans"])


def test_busy_spans_closer_than_50_ms_are_one() -> None:
    spans = [(1.0, 2.0), (2.04, 3.0), (3.06, 4.0), (4.0, 5.0)]
    events = [
        next(iter(sample_events())),
        *(e.WorkerSpan(time_s=START_S + end, worker="train-0", start_s=START_S + start) for start, end in spans),
    ]
    drawn = Page(build_report(events)).data["timeline"]["spans"]
    assert [(span[2], span[3]) for span in drawn] == [(1.0, 3.0), (3.06, 5.0)]


def test_the_gap_of_a_resumed_run_is_shown_and_named(page: Page) -> None:
    ((start_x, end_x, length_s),) = page.data["timeline"]["gaps"]
    assert 7000 < length_s < 7300
    assert end_x - start_x < 20
    assert re.search(r"The run was down for (2 h 00 min|1 h 59 min) before it was resumed", page.text)


def test_phases_that_overlap_share_their_lane() -> None:
    start = next(iter(sample_events()))
    phases = [("rollout", 0, 10), ("training", 4, 8), ("evaluation", 12, 14)]
    events = [
        start,
        *(e.PhaseSpan(time_s=START_S + b, task="gcd", phase=name, step=1, start_s=START_S + a) for name, a, b in phases),
    ]
    assert [span[4:6] for span in Page(build_report(events)).data["timeline"]["spans"]] == [[0, 2], [1, 2], [0, 1]]


def test_utilisation_per_worker(page: Page) -> None:
    assert re.search(r"rollout-0 \d\d % \d min \d\d s \d+ [\d.]+ s train-0 \d\d %", page.text)
    assert [worker["worker"] for worker in page.data["utilisation"]] == ["rollout-0", "train-0"]
    shares = [share for worker in page.data["utilisation"] for _, share in worker["shares"]]
    assert None in shares
    assert all(0 <= share <= 1 for share in shares if share is not None)


def test_steps_are_tables_that_fold(page: Page) -> None:
    assert page.text.count("gcd 20 steps step phase reward") == 1
    assert "word_sorting 4 steps" in page.text
    assert re.search(r"1 warm start - - \S+ \S+ 0\.0005 64 - 2,600", page.text), "what was not measured is a dash"
    assert "length 4, stop token 60" in page.text
    assert "KL to base" not in page.text, "a column in which nothing was measured is left out"


def test_answers_are_paired_first_against_last(page: Page) -> None:
    assert page.text.index("gcd The same held-out questions") < page.text.index("calculator The same held-out questions")
    part = page.text[page.text.index("gcd The same held-out questions") :]
    first = part.index("reward 0 version 0")
    assert part.index("no idea") < part.index("reward 1 version 20") < part.index("the solution")
    assert "divisor of 12 and 18" in part[first : part.index("the solution")]
    assert re.search(r"reward 0 step 1 · length .*? wrong .*? reward 1 step 20 · length .*? right 0", part)
    assert "result: 42" in page.text, "what the environment answered"
    assert part.count("right 5") == 0, "only the first questions"


def test_errors_and_warnings_have_counts(page: Page) -> None:
    part = page.text[page.text.index("Warnings and errors") :]
    assert re.search(
        r"1 failed word_sorting ZeroDivisionError: .*? Traceback .* 3 turn error calculator tool timed out after 30 s", part
    )
    assert re.search(r"1 warning gcd answers were cut", part)


def test_the_config_is_there_as_text(page: Page, report: str) -> None:
    assert 'instruction = "Answer with <answer> & nothing else"' in page.text
    assert "&lt;answer&gt; &amp; nothing else" in report


def test_nothing_from_outside_becomes_an_element(page: Page, report: str) -> None:
    assert HOSTILE.replace("\x1b", "␛") in page.text
    assert not any(tag == "img" for tag, _ in page.tags)
    assert [attributes for attributes, _ in page.scripts] == [{"type": "application/json", "id": "data"}, {}, {}]
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "\x1b" not in report


def test_names_that_are_markup_stay_text_in_the_page_and_in_its_data() -> None:
    name = "</script><!--<b>&\u2028"
    start = e.RunStarted(
        time_s=0,
        run=name,
        model=name,
        dtype=name,
        device=name,
        tasks=(name,),
        workers=(name,),
        batch_invariant=True,
        plait_version="0",
    )
    spans: list[e.AnyEvent] = [
        e.WorkerSpan(time_s=2, worker=name, start_s=1),
        e.PhaseSpan(time_s=2, task=name, phase=name, step=1, start_s=1),
    ]
    page = Page(build_report([start, *spans]))
    assert [lane["name"] for lane in page.data["timeline"]["lanes"]] == [name, name]
    assert page.data["timeline"]["kinds"] == [name, "busy"]
    assert not any(tag == "b" for tag, _ in page.tags)
    assert len(page.scripts) == 3


def test_it_needs_no_network_and_lets_nothing_else_run(page: Page, report: str) -> None:
    assert not any({"src", "href"} & set(attributes) for _, attributes in page.tags)
    policy = next(
        attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert "unsafe-eval" not in policy
    assert not re.search(r"@import|url\(", report.split("</style>")[0])


def test_it_is_for_dark_and_light_and_small_screens(report: str) -> None:
    assert "prefers-color-scheme: dark" in report
    assert 'name="viewport" content="width=device-width' in report


@pytest.mark.parametrize(
    "events", [[], list(sample_events())[:1], [e.RunEnded(time_s=5, status="failed")]], ids=["none", "start", "end"]
)
def test_a_run_without_a_step_has_a_report(events: list[e.AnyEvent]) -> None:
    page = Page(build_report(events))
    assert "No phase has ended yet." in page.text
    assert "None." in page.text
    assert page.data["timeline"]["spans"] == []


def test_one_task_without_evaluation_shows_its_reward() -> None:
    events = [event for event in sample_events(("gcd",), 5, None) if not isinstance(event, e.EvaluationDone)]
    text = Page(build_report(events)).text
    assert re.search(r"gcd 0\.\d\d → 0\.\d\d [+-]0\.\d\d reward 5 of 5 steps", text)


def test_rewards_beyond_one_widen_the_scale_and_nan_breaks_nothing() -> None:
    steps = [event for event in sample_events(("gcd",), 3, None) if isinstance(event, e.StepCommitted)]
    odd = [msgspec.structs.replace(step, reward_mean=value) for step, value in zip(steps, (-2.5, float("nan"), 4.0), strict=True)]
    curves = Page(build_report(odd)).data["curves"]
    assert (curves["low"], curves["high"]) == (-2.5, 4.0)
    assert [point[1] for point in curves["tasks"][0]["rewards"]] == [-2.5, None, 4.0]


def test_a_repeated_step_is_one_row_and_one_point() -> None:
    events = list(sample_events(("gcd",), 5, None))
    repeated = [event for event in events if isinstance(event, e.StepCommitted)]
    page = Page(build_report([*events[:-1], *repeated[-2:], events[-1]]))
    assert [point[0] for point in page.data["curves"]["tasks"][0]["rewards"]] == [1, 2, 3, 4, 5]
    assert "gcd 5 steps" in page.text


def test_many_tasks_and_events_are_thinned() -> None:
    names = tuple(f"task-{number}" for number in range(32))
    many = [e.WorkerSpan(time_s=START_S + n * 0.2 + 0.1, worker="rollout-0", start_s=START_S + n * 0.2) for n in range(10_000)]
    events = sorted([*sample_events(names, 20), *many], key=lambda event: event.time_s)
    text = build_report(events)
    page = Page(text)
    spans = page.data["timeline"]["spans"]
    assert len(page.data["timeline"]["lanes"]) == 34
    assert sum(span[0] == 32 for span in spans) <= max(200, MAX_SPANS // 34)
    assert len(spans) <= MAX_SPANS + 34
    assert len(text) < 3_000_000


def test_many_steps_are_thinned_with_the_last_kept() -> None:
    steps = [event for event in sample_events(("gcd",), 3, None) if isinstance(event, e.StepCommitted)]
    many = [msgspec.structs.replace(steps[-1], step=number, time_s=START_S + number) for number in range(1, 5001)]
    page = Page(build_report(many))
    assert re.search(r"gcd 5000 steps, \d{3} of them shown", page.text)
    rewards = page.data["curves"]["tasks"][0]["rewards"]
    assert (rewards[0][0], rewards[-1][0]) == (1, 5000)
    assert len(rewards) <= 1001


def test_long_texts_are_cut() -> None:
    long = TaskSamples(task="gcd", first=[sample_record("gcd", 1, 0, 0, 0.5, "x" * 100_000)])
    text = Page(build_report(sample_events(), [long])).text
    assert "(96,000 more characters)" in text
    assert "reward 0.5 step 1" in text


def test_writing_replaces_the_file_at_once(tmp_path: Path, report: str) -> None:
    path = tmp_path / "report.html"
    write_report(path, "old")
    write_report(path, report)
    assert path.read_text(encoding="utf-8") == report
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_draws_it_from_a_file_and_runs_nothing_hostile(tmp_path: Path, report: str) -> None:
    path = tmp_path / "report.html"
    write_report(path, report)
    command = ["chromium", *CHROMIUM_FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    drawn = Page(result.stdout)
    assert sum(tag == "canvas" for tag, _ in drawn.tags) == 5, "three curves, the timeline, the utilisation"
    assert re.search(r"<title>demo - Plait report</title>", result.stdout), "no injected script ran"
    assert "CONSOLE" not in result.stderr, result.stderr
    assert html.escape("worker busy") in result.stdout


def test_a_report_may_be_written_by_many_at_once(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    texts = {f"{index}" * 200_000 for index in range(8)}
    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            list(pool.map(lambda text: write_report(path, text), texts))
            assert path.read_text(encoding="utf-8") in texts
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
