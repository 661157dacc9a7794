import subprocess
import sys
from pathlib import Path

import pytest

from plait.state.rundir import RunDirectory, find_run, list_runs
from plait.types.errors import StateError

HOLDER = """
import sys
from pathlib import Path
from plait.state.rundir import RunDirectory
with RunDirectory(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_layout(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo", 'name = "demo"\n')
    assert run.config.read_text() == 'name = "demo"\n'
    relative = {path.relative_to(run.path).as_posix() for path in (run.events, run.report, run.lock_file)}
    assert relative == {"events.jsonl", "report.html", "lock"}
    assert run.step_folder("add", 12).relative_to(run.path).as_posix() == "tasks/add/steps/000012"
    assert run.samples_file("add", 12).relative_to(run.path).as_posix() == "tasks/add/samples/000012.jsonl"
    assert run.evaluation_file("add", 12).name == "evaluation-000012.jsonl"


def test_names_are_unique_and_runs_are_found(tmp_path: Path) -> None:
    made = [RunDirectory.create(tmp_path / "runs", "demo", "").name for _ in range(3)]
    assert made == ["demo", "demo-2", "demo-3"]
    (tmp_path / "runs" / "no-run").mkdir()
    assert sorted(run.name for run in list_runs(tmp_path / "runs")) == made
    assert find_run("demo-2", tmp_path / "runs").name == "demo-2"
    assert find_run(str(tmp_path / "runs" / "demo")).name == "demo"
    assert find_run(None, tmp_path / "runs").name == "demo-3"


def test_unknown_run_names_the_known(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, "demo", "")
    with pytest.raises(StateError, match=r"'dmeo'.*has demo"):
        find_run("dmeo", tmp_path)
    with pytest.raises(StateError, match="there is no run in"):
        find_run(None, tmp_path / "empty")
    with pytest.raises(StateError, match="is not a run"):
        RunDirectory.open(tmp_path)


def test_root_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot create a run"):
        RunDirectory.create(tmp_path / "file", "demo", "")


def test_lock_keeps_others_out_and_names_the_holder(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo", "")
    assert run.holder() is None
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder, holder.stdout:
        assert holder.stdout.readline() == b"held\n"
        assert run.holder() == holder.pid
        with pytest.raises(StateError, match=f"in use by process {holder.pid}"):
            run.lock()
        holder.kill()
        holder.wait(timeout=120)
        assert run.holder() is None
        with run.lock():
            assert run.holder() is not None
    assert run.holder() is None


def test_lock_is_released_once(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo", "")
    lock = run.lock()
    lock.release()
    lock.release()
    with run.lock(), pytest.raises(StateError):
        run.lock()
