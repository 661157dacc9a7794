"""`plait tasks` against a real server."""

import json
from pathlib import Path

import pytest

from plait.cli.main import main
from tests.server.managed.managed_server import ManagedServer
from tests.server.managed.task_files import task, task_file

RECORDS = "\n".join(json.dumps({"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"}) for n in range(20))


def call(*arguments: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tasks", *arguments])
    assert (ended.value.code or 0) == code, arguments


def test_a_task_is_submitted_watched_steered_and_taken_away(
    managed: ManagedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = managed.tenant()
    monkeypatch.setenv("PLAIT_URL", managed.process.url)
    monkeypatch.setenv("PLAIT_API_KEY", ann.key)
    data, file = tmp_path / "sums.jsonl", tmp_path / "tasks.toml"
    data.write_text(RECORDS)
    file.write_text(task_file(task("a", environment={"kind": "dataset", "path": "upload:sums.jsonl", "require_stop": False})))

    call("submit", str(file), "--data", str(data), "--follow")
    told = capsys.readouterr().out
    run = told.splitlines()[-1].split()[0]
    assert "a  step 5/5" in told
    assert f"{run} is done." in told

    call("list", "--json")
    assert [row["run_id"] for row in json.loads(capsys.readouterr().out)["runs"]] == [run]
    call("show", run)
    assert " 5/5 " in capsys.readouterr().out
    call("logs", run, "--json")
    assert [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()][-1] == "run_ended"
    call("report", run, "--to", str(tmp_path / "report.html"))
    capsys.readouterr()
    call("list")
    assert capsys.readouterr().out.splitlines()[0].split() == ["run", "state", "submitted", "ended"]
    call("adapter", run, "--to", str(tmp_path / "there-is-none" / "a.zip"), code=2)
    assert "there is no folder" in capsys.readouterr().err
    call("report", run, "--to", str(tmp_path), code=2)
    assert "cannot write" in capsys.readouterr().err
    call("adapter", run, "--to", str(tmp_path / "a.zip"))
    assert (tmp_path / "a.zip").read_bytes()[:2] == b"PK"
    capsys.readouterr()

    file.write_text(task_file(task("a", steps=500)))
    call("submit", str(file), "--json")
    run = json.loads(capsys.readouterr().out)["run_id"]
    for action, state in (("pause", "paused"), ("resume", "running"), ("cancel", None)):
        ann.wait(run, lambda view: view["state"] != "queued")
        call(action, run, "--json")
        answer = json.loads(capsys.readouterr().out)
        assert state is None or answer["state"] == state
    call("logs", run, "--follow", code=1)
    assert f"{run} is cancelled." in capsys.readouterr().out


def test_the_servers_refusal_is_told_with_its_key(
    managed: ManagedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tasks.toml"
    file.write_text(task_file(task("a", environment={"kind": "dataset", "path": "/etc/passwd"})))
    call("submit", str(file), "--url", managed.process.url, "--key", managed.tenant().key, code=2)
    assert 'environment.path = "/etc/passwd"' in capsys.readouterr().err
    call("show", "nothing", "--url", managed.process.url, "--key", managed.tenant().key, code=2)
    assert "no run 'nothing'" in capsys.readouterr().err
    for words in (("list",), ("logs", "nothing")):
        call(*words, "--url", managed.process.url, "--key", "tml-wrong", code=2)
        assert "PLAIT_API_KEY" in capsys.readouterr().err
