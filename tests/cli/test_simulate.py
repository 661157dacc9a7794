"""`plait simulate`, and what it and `plait plan` refuse, as they are called."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from plait.cli.main import main
from plait.simulation.load_scenario import parse_scenario
from plait.simulation.simulate import simulate
from tests.observe.sample_run import write_sample_run
from tests.simulation.scenarios import JOBS, TASKS


def call(*arguments: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert caught.value.code in (0, None), caught.value.code


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(TASKS, encoding="utf-8")
    return str(path)


def test_without_a_scenario_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    call("simulate")
    out = capsys.readouterr().out
    assert "Shipped scenarios:" in out
    assert re.search(r"eight-tasks +Eight tasks", out)


def test_files_are_the_same_again_and_the_table_shows_systems_side_by_side(
    tmp_path: Path, tasks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        files = ("--json", str(folder / "out.json"), "--html", str(folder / "out.html"), "--csv", str(folder / "csv"))
        call("simulate", tasks, "--seed", "5", *files)
        found.append({path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()})
    assert found[0] == found[1]
    assert [str(path) for path in found[0]] == ["csv/figures.csv", "csv/timeline.csv", "csv/works.csv", "out.html", "out.json"]
    captured = capsys.readouterr()
    assert captured.out.startswith("Small, seed 5\n")
    assert re.search(r"plait +one at a time", captured.out)
    assert re.search(r"steps per hour +[\d,]+ +[\d,]+ +0\.\d\dx", captured.out)
    assert captured.err == "", "no progress bar where nobody looks at it"


def test_json_and_csv_agree(tmp_path: Path, tasks: str) -> None:
    call("simulate", tasks, "--quick", "--json", str(tmp_path / "out.json"), "--csv", str(tmp_path))
    systems = json.loads((tmp_path / "out.json").read_text())["systems"]
    with (tmp_path / "figures.csv").open() as file:
        rows = {row["figure"]: row for row in csv.DictReader(file)}
    for system in systems:
        assert float(rows["makespan_s"][system["name"]]) == system["figures"]["makespan_s"]


def test_a_bad_file_is_told_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(TASKS.replace("steps = 3", "stesp = 3"))
    with pytest.raises(SystemExit) as caught:
        main(["simulate", str(path)])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "stesp = 3: unknown key; did you mean 'steps'? (line 19)" in error


def test_a_run_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_sample_run(tmp_path / "demo", num_steps=2)
    call("simulate", "--from", "demo", "--runs", str(tmp_path), "--accelerator", "A100", "--copies", "2")
    out = capsys.readouterr().out
    assert out.startswith("Run demo on 4 A100")
    assert "recorded with SmolLM2-135M-Instruct" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", "eight-tasks", "--copies", "2"], "Name a run with --from."),
        (["simulate", "--from", "demo", "--quick"], "has the steps that were recorded"),
        (["simulate", "eight-task"], 'Did you mean "eight-tasks"?'),
        (["simulate", "eight-tasks", "--days", "2"], "--days is for scenarios of jobs"),
        (["simulate", "--from", "demo", "--days", "2"], "--days and --from contradict each other"),
        (["plan", "--jobs", "eight-tasks"], "a plan is made for jobs"),
        (["plan", "eight-tasks"], "a plan is made for jobs"),
        (["plan", "a.toml", "--jobs", "b.toml"], "a plan is made for one scenario"),
        (["plan"], "`plait plan sixteen-jobs --quick`"),
        (["plan", "sixteen-jobs", "--slo", "inf"], "--slo inf: it is no finite number"),
        (["plan", "sixteen-jobs", "--accelerator", "CPU", "--quick"], "sixteen-jobs with --accelerator CPU: "),
        (["plan", "sixteen-jobs", "--accelerator", "H1000"], 'Did you mean "H100"?'),
        (["simulate", "sixteen-jobs", "--days", "inf"], "--days inf: it is no finite number"),
        (["simulate", "sixteen-jobs", "--days", "1e9"], "jobs, of 1,000,000 at most"),
        (["simulate", "sixteen-jobs", "--json", "x", "--html", "./x"], "--json and --html both name x"),
        (["simulate", "eight-tasks", "--quick", "--json", "/nowhere/x.json"], "choose another file with --json."),
    ],
)
def test_what_cannot_be_done_is_told(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_days_of_jobs(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS, encoding="utf-8")
    call("simulate", str(path), "--days", "0.5", "--json", str(tmp_path / "out.json"))
    systems = json.loads((tmp_path / "out.json").read_text())["systems"]
    counts = [system["figures"]["ended"] for system in systems]
    assert counts == [len(system["works"]) for system in systems] == [counts[0]] * 2
    assert counts[0] == pytest.approx(43_200 * 32 / (16 * 12 * 240), abs=1)
    assert all(0.9 * 43_200 < system["end_s"] < 2 * 43_200 for system in systems)


def test_what_cannot_be_written_is_kept_and_the_rest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SystemExit) as caught:
        main(["simulate", str(tmp_path / "jobs.toml"), "--quick", "--json", "/dev/full", "--csv", str(tmp_path / "tables")])
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert "jobs that ended" in captured.out
    assert (tmp_path / "tables" / "works.csv").exists()
    told = re.search(r"cannot write /dev/full: No space left on device\.\nIt is in (\S+)\. Choose .* --json", captured.err)
    assert told is not None
    assert [system["name"] for system in json.loads(Path(told[1]).read_text())["systems"]] == ["isolated", "pack"]


def test_files_are_written_though_nobody_reads_the_table(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS)
    command = [sys.executable, "-m", "plait.cli.main", "simulate", "jobs.toml", "--quick", "--json", "out.json"]
    reader, writer = os.pipe()
    os.close(reader)
    subprocess.run(command, cwd=tmp_path, stdout=writer, stderr=subprocess.DEVNULL, timeout=120)
    os.close(writer)
    assert json.loads((tmp_path / "out.json").read_text())["kind"] == "jobs"


def test_a_full_disk_under_the_table_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS)
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=True))
        with pytest.raises(SystemExit) as caught:
            main(["simulate", str(tmp_path / "jobs.toml"), "--quick"])
    assert caught.value.code == 2
    assert "cannot write: No space left on device" in capsys.readouterr().err


def test_jobs_that_no_node_is_left_for_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failures = "".join(f'[[failures]]\nnode = "node-000{node}"\nat_s = 100\n' for node in range(4))
    (tmp_path / "jobs.toml").write_text(JOBS + failures)
    call("simulate", str(tmp_path / "jobs.toml"))
    out = capsys.readouterr().out
    assert "pack: 4 of 4 jobs did not end.\n" in out
    assert "all jobs done after" not in out


@pytest.mark.parametrize("text", [TASKS.replace("steps = 3", "steps = 1"), JOBS.replace("steps = 12", "steps = 60")])
def test_progress_is_told_within_a_step_and_never_goes_back(text: str) -> None:
    shares: list[float] = []

    def tell(what: str, share: float | None) -> None:
        shares.append(share or 0.0)

    simulate(parse_scenario(text), "x", on_progress=tell)
    assert len({round(share, 3) for share in shares}) > 6, "more than one for each system"
    assert shares == sorted(shares)
    assert 0.0 <= shares[0] < 0.2
    assert 0.8 < shares[-1] <= 1.0


def test_a_quick_look_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.toml").write_text(TASKS.replace("steps = 3", "steps = 1"))
    call("simulate", str(tmp_path / "one.toml"), "--quick")
    assert "--quick changes nothing" in capsys.readouterr().err


def test_the_example_of_the_documentation_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/simulation.md: every TOML file in it is a scenario."""
    text = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml \S+\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    for number, block in enumerate(blocks):
        path = tmp_path / f"{number}.toml"
        path.write_text(block, encoding="utf-8")
        call("simulate", str(path), "--quick")
    assert "steps per hour" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", "eight-tasks", "--html", "absent/report.html"),
        ("simulate", "eight-tasks", "--json", "."),
        ("simulate", "eight-tasks", "--csv", "taken"),
        ("simulate", "eight-tasks", "--csv", "taken/tables"),
        ("simulate", "eight-tasks", "--html", "/proc/report.html"),
        ("simulate", "eight-tasks", "--csv", "/proc/tables"),
        ("profile", "tiny", "--output", "absent/profile.json"),
        ("profile", "tiny", "--dtype", "float16"),
    ],
)
def test_what_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("a file")
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert arguments[-1].partition("/")[0] in captured.err
    assert arguments[-2] in captured.err
    assert captured.out == ""
