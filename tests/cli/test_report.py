from pathlib import Path
from typing import Any

import pytest
import typer

from plait.cli.main import main
from plait.state.rundir import RunDirectory
from tests.observe.sample_run import CONFIG, write_sample_run


def report(capsys: Any, *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["report", *arguments])
    assert end.value.code == 0
    text: str = capsys.readouterr().out
    return text


def test_it_is_written_into_the_run_with_its_samples_and_settings(tmp_path: Path, capsys: Any) -> None:
    directory = write_sample_run(tmp_path / "demo", num_steps=5)
    assert report(capsys, "demo", "--runs", str(tmp_path)) == f"{directory.report}\n"
    text = directory.report.read_text(encoding="utf-8")
    assert text.count("The same held-out questions") == 3
    assert "step 1 · length" in text
    assert "step 5 · length" in text
    assert "groups_per_step = 8" in text
    assert "Answers" in text


def test_a_run_that_has_written_nothing_yet_has_a_report(tmp_path: Path, capsys: Any) -> None:
    directory = RunDirectory.create(tmp_path, "new", CONFIG)
    report(capsys, "--runs", str(tmp_path))
    assert "No sample answers were kept." in directory.report.read_text(encoding="utf-8")


def test_a_step_with_one_sample_file_is_one_column(tmp_path: Path, capsys: Any) -> None:
    directory = write_sample_run(tmp_path / "demo", num_steps=5)
    directory.samples_file("gcd", 5).unlink()
    directory.evaluation_file("gcd", 5).unlink()
    report(capsys, "demo", "--runs", str(tmp_path))
    assert directory.report.read_text(encoding="utf-8").count('class="answers two"') == 4


def test_open_opens_it(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(typer, "launch", opened.append)
    directory = write_sample_run(tmp_path / "demo", num_steps=2)
    report(capsys, "demo", "--open", "--runs", str(tmp_path))
    assert opened == [directory.report.as_uri()]
