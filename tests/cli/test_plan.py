"""`plait plan`, as it is called."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.test_simulate import call
from tests.simulation.scenarios import JOBS


def test_a_plan_is_a_table_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS)
    call("plan", "--jobs", str(path), "--slo", "1.3", "--quick")
    out = capsys.readouterr().out
    assert "The fewest H100 on which every job ends within 1.3 times" in out
    assert re.search(r"^isolated +\d+ +\d+", out, re.MULTILINE)
    assert re.search(r"^pack  \d+: \d\.\d\d, \d+: ", out, re.MULTILINE)
    call("plan", str(path), "--slo", "1.3", "--quick")
    assert capsys.readouterr().out == out, "with the option or without"
    call("plan", "--jobs", str(path), "--accelerator", "A100", "--quick", "--json")
    plans = json.loads(capsys.readouterr().out)
    assert [plan["system"] for plan in plans] == ["isolated", "pack"]


def test_a_bound_that_nothing_keeps_is_told_with_what_is_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS.replace("devices = 32", "", 1))
    call("plan", str(path), "--slo", "1", "--quick")
    assert re.search(r"isolated: not even 64 devices .* there it takes 1\.\d+ times its time alone", capsys.readouterr().out)
