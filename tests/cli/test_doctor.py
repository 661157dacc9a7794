"""The doctor names what is missing and how to mend it, and its exit code says whether anything is."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from plait.cli import machine
from plait.cli.finding import Finding
from plait.cli.machine import examine_machine
from plait.cli.main import main
from plait.models import invariance


def plait(*arguments: str) -> object:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return caught.value.code


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model at hand, and no seconds spent on the self-test."""
    monkeypatch.setenv("PLAIT_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "BUSY_PROBE_S", 0.01)

    def self_test(dtype: torch.dtype) -> invariance.InvarianceReport:
        return invariance.InvarianceReport(dtype == torch.bfloat16, "compared")

    monkeypatch.setattr(invariance, "machine_self_test", self_test)


def by_name() -> dict[str, Finding]:
    return {finding.name: finding for finding in examine_machine()}


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name in modules else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def test_names_everything_it_looks_at() -> None:
    expected = {"python", "system", "cores", "memory", "disk", "load", "bfloat16 on CPU", "torch", "CUDA", "demo model"}
    found = by_name()
    assert expected <= found.keys()
    assert found["torch"].status == "ok"
    assert torch.__version__ in found["torch"].detail
    assert (found["batch-invariant bfloat16"].status, found["batch-invariant float32"].status) == ("ok", "warning")


def test_missing_model_is_named_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("doctor") == 1
    assert "plait models pull smollm2-135m-instruct" in capsys.readouterr().out


def test_missing_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "torch", "wandb")
    found = by_name()
    engine = found["extra engine"]
    assert (engine.status, engine.detail, engine.remedy) == ("missing", "not installed: torch", "pip install 'plait[engine]'")
    assert found["extra trackers"].status == "warning"
    assert "torch" not in found
    assert "batch-invariant bfloat16" not in found


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "models" / machine.DEMO_MODEL).mkdir(parents=True)
    assert plait("doctor", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] is True
    assert {finding["status"] for finding in result["findings"]} <= {"ok", "warning", "optional"}
    assert {"extra ray", "extra vllm", "extra hub", "extra mooncake"} <= {finding["name"] for finding in result["findings"]}


def test_old_python_and_plain_cpu() -> None:
    assert machine.find_python((3, 10, 4)).status == "missing"
    assert machine.find_cpu_flags(frozenset({"avx2"})).status == "warning"
    assert machine.find_cpu_flags(frozenset({"avx512_bf16"})).detail == "avx512_bf16"


@pytest.mark.parametrize(("key", "flag"), [("flags", "amx_bf16"), ("Features", "bf16")])
def test_cpu_flags_of_both_architectures(tmp_path: Path, key: str, flag: str) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{key}\t\t: fpu {flag}\n")
    assert flag in machine.read_cpu_flags(tmp_path / "cpuinfo")
    assert machine.read_cpu_flags(tmp_path / "absent") == frozenset()


def test_busy_cores_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.psutil, "cpu_percent", lambda interval: 80.0)
    finding = machine.find_load()
    assert finding.status == "warning"
    assert "80%" in finding.detail
