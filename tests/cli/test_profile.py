"""`plait profile`: a profile of this machine, and a simulation with it."""

import json
from pathlib import Path

import pytest

from tests.cli.test_simulate import call
from tests.simulation.scenarios import TASKS

SCENARIO = (
    TASKS.split("[[systems]]")[0]
    .replace("devices = 3", "devices = 2")
    .replace('name = "Qwen3-0.6B"', 'name = "tiny"\nprofile = "profile.json"')
)


def test_a_measured_profile_takes_the_place_of_specifications(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call("profile", "tiny", "--quick", "--threads", "1", "--adapters", "2", "--output", str(tmp_path / "profile.json"))
    told = capsys.readouterr().out
    assert "decode: off by" in told
    assert "ends of chunks" not in told  # Two points, which leave none to be told of.
    assert "points not fitted" in told
    assert "profile.json" in told
    (tmp_path / "here.toml").write_text(SCENARIO)
    (tmp_path / "specified.toml").write_text(SCENARIO.replace('name = "tiny"\nprofile = "profile.json"', 'name = "Qwen3-0.6B"'))
    monkeypatch.chdir("/")
    ends_s = []
    for name in ("here", "specified"):
        call("simulate", str(tmp_path / f"{name}.toml"), "--json", str(tmp_path / f"{name}.json"))
        ends_s.append(json.loads((tmp_path / f"{name}.json").read_text())["systems"][0]["figures"]["makespan_s"])
    assert ends_s[0] != ends_s[1]
