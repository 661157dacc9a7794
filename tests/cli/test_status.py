import json
import re
from pathlib import Path
from typing import Any

import pytest

from plait.cli.main import main
from plait.observe.events import RunStarted
from plait.observe.log import EventLog
from plait.state.rundir import RunDirectory
from tests.observe.sample_run import CONFIG, sample_events, write_sample_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_sample_run(tmp_path / "finished", num_steps=5)
    write_sample_run(tmp_path / "broken", num_steps=5, failing="gcd")
    half = RunDirectory.create(tmp_path, "half", CONFIG)
    with EventLog(half.events) as log:
        for event in list(sample_events(num_steps=5, resume_after=None))[:60]:
            log.append(event)
    with half.events.open("ab") as file:
        file.write(b'{"kind":"step","tas')
    return tmp_path


def output(capsys: Any, *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    assert end.value.code == 0
    text: str = capsys.readouterr().out
    assert "\x1b" not in text
    return text


def test_all_runs_are_listed_with_their_state(runs: Path, capsys: Any) -> None:
    text = output(capsys, "status", "--runs", str(runs))
    assert re.search(r"finished +done +3 +15/15 +\+\d+ points +20\d\d-\d\d-\d\d \d\d:\d\d +\d+ (s|min)", text)
    assert re.search(r"half +interrupted +3 +\d/15", text)
    assert f"half was interrupted. Go on with: plait resume {runs / 'half'}" in text
    assert text.count("plait resume") == 1


def test_a_run_whose_process_is_gone_is_interrupted_and_says_how_to_go_on(runs: Path, capsys: Any) -> None:
    text = output(capsys, "status", "half", "--runs", str(runs))
    assert "interrupted" in text
    assert f"Its process is gone. Go on with: plait resume {runs / 'half'}" in text
    assert re.search(r"gcd +\w+ +v\d +\d/5", text)
    assert "rollout-0" in text


def test_under_the_default_folder_the_name_is_enough(runs: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (runs / "runs").mkdir()
    (runs / "half").rename(runs / "runs" / "half")
    monkeypatch.chdir(runs)
    assert "Go on with: plait resume half\n" in output(capsys, "status", "half")


def test_a_run_that_a_process_holds_is_running(runs: Path, capsys: Any) -> None:
    directory = RunDirectory(runs / "half")
    with directory.lock():
        text = output(capsys, "status", "half", "--runs", str(runs))
        state = json.loads(output(capsys, "status", "half", "--runs", str(runs), "--json"))
    assert "plait resume" not in text
    assert (state["status"], state["resume_command"]) == ("running", None)
    assert state["active_s"] > 1000, "its clock goes on"
    assert json.loads(output(capsys, "status", "half", "--runs", str(runs), "--json"))["status"] == "interrupted"


def test_a_held_run_that_has_not_said_anything_is_starting(runs: Path, capsys: Any) -> None:
    directory = RunDirectory.create(runs, "new", CONFIG)
    with directory.lock():
        assert json.loads(output(capsys, "status", "new", "--runs", str(runs), "--json"))["status"] == "starting"
    assert json.loads(output(capsys, "status", "new", "--runs", str(runs), "--json"))["status"] == "interrupted"


def test_a_finished_run_shows_tasks_and_the_cause_of_a_failure(runs: Path, capsys: Any) -> None:
    text = output(capsys, "status", "broken", "--runs", str(runs))
    assert re.search(r"gcd +failed +v4 +4/5", text)
    assert "gcd: ZeroDivisionError" in text
    assert "plait resume" not in text


def test_json_has_everything_a_program_needs(runs: Path, capsys: Any) -> None:
    listed = json.loads(output(capsys, "status", "--runs", str(runs), "--json"))["runs"]
    assert {run["run"]: run["status"] for run in listed} == {"finished": "done", "broken": "done", "half": "interrupted"}
    one = json.loads(output(capsys, "status", "finished", "--runs", str(runs), "--json"))
    assert one["path"] == str(runs / "finished")
    assert one["tasks"][0]["task"] == "gcd"
    assert one["tasks"][0]["policy_version"] == 5
    assert one["tasks"][1]["warm_start_steps"] == 3
    assert 0 < one["workers"][0]["utilisation"] <= 1
    assert one["steps_per_hour"] > 0


def test_no_runs_and_a_wrong_name_are_explained(tmp_path: Path, capsys: Any) -> None:
    assert "There is no run in" in output(capsys, "status", "--runs", str(tmp_path))
    assert json.loads(output(capsys, "status", "--runs", str(tmp_path), "--json")) == {"runs": []}
    with pytest.raises(SystemExit) as end:
        main(["status", "nope", "--runs", str(tmp_path)])
    assert end.value.code == 2
    assert "there is no run 'nope'" in capsys.readouterr().err


def test_a_running_run_uses_the_name_of_its_folder(runs: Path, capsys: Any) -> None:
    assert any(isinstance(event, RunStarted) and event.run == "demo" for event in sample_events(num_steps=1))
    assert json.loads(output(capsys, "status", "half", "--runs", str(runs), "--json"))["run"] == "half"


def test_a_log_that_cannot_be_read_hides_no_other_run(runs: Path, capsys: Any) -> None:
    (runs / "half" / "events.jsonl").write_bytes(b'{"kind":"step"}\n')
    text = output(capsys, "status", "--runs", str(runs))
    assert re.search(r"finished +done", text)
    assert re.search(r"half +unreadable", text)
    assert "`plait status half` says why" in text
    listed = json.loads(output(capsys, "status", "--runs", str(runs), "--json"))["runs"]
    assert {run["run"]: run["status"].partition(":")[0] for run in listed} == {
        "finished": "done", "broken": "done", "half": "unreadable"
    }  # fmt: skip
    with pytest.raises(SystemExit) as end:
        main(["status", "half", "--runs", str(runs)])
    assert end.value.code != 0
    assert "line 1 is not an event" in capsys.readouterr().err
