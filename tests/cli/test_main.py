"""The frame of the command line: quick, helpful, and clear about errors."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plait.cli import main as cli
from plait.cli.main import COMMANDS, load_command, main
from plait.types.errors import ConfigError


def run_plait(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "plait.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload]


def exit_code(arguments: list[str]) -> object:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return caught.value.code


def test_help_names_all_commands() -> None:
    result = run_plait("--help")
    assert result.returncode == 0
    assert all(f"\n  {name} " in result.stdout for name in COMMANDS)


def test_help_is_quick() -> None:
    """It imports nothing heavy, and of its own only what shows errors and the version."""
    code = (
        "import sys\nfrom plait.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'msgspec', 'rich', 'transformers', 'httpx'}\n"
        "own = {name for name in sys.modules if name.startswith('plait.') and name.count('.') > 1}\n"
        "print(sorted(heavy & set(sys.modules)), sorted(own), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, _, own = result.stderr.strip().partition("] ")
    assert heavy == "["
    assert len(own.split()) <= 6, own


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_and_does_not_import_torch(name: str) -> None:
    assert importlib.util.find_spec(COMMANDS[name].module)
    code = (
        f"import sys\nfrom plait.cli.main import main\ntry: main(['{name}', '--help'])\n"
        "except SystemExit as end: assert end.code == 0\nassert 'torch' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert f"plait {name}" in result.stdout or f"root {name}" in result.stdout or "Usage" in result.stdout
    assert COMMANDS[name].summary.split(".")[0] in " ".join(result.stdout.split())


@pytest.mark.parametrize(("typed", "meant"), [("rnu", "run"), ("stats", "status"), ("modles", "models"), ("reprot", "report")])
def test_misspelt_command_suggests_the_nearest(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([typed]) == 2
    error = capsys.readouterr().err
    assert f"error: there is no command '{typed}'." in error
    assert f"Did you mean `plait {meant}`?" in error


def test_unknown_command_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["zzzzzz"]) == 2
    assert "run, resume, status" in capsys.readouterr().err


def test_unknown_option_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["run", "--dryrun", "x.toml"]) == 2
    assert "--dry-run" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_version(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(arguments) == 0
    assert capsys.readouterr().out == "plait 0.1.0\n"


def test_error_is_two_lines_on_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ConfigError("seed = 'x': must be a whole number.", "Give one.")

    monkeypatch.setattr("plait.cli.version.version", fail)
    assert exit_code(["version"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: seed = 'x': must be a whole number.\nGive one.\n"


def test_colour_only_on_a_terminal() -> None:
    import pty

    results = []
    for environment in ({}, {"NO_COLOR": "1"}):
        outer, inner = pty.openpty()
        run = [sys.executable, "-m", "plait.cli.main", "rnu"]
        subprocess.run(run, stderr=inner, stdout=subprocess.DEVNULL, env={**os.environ, "NO_COLOR": "", **environment}, timeout=120)
        results.append(os.read(outer, 4096).decode())
        os.close(outer)
        os.close(inner)
    assert results[0].startswith("\033[31merror:\033[0m there is no command")
    assert results[1].startswith("error: there is no command")


def test_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("plait.cli.version.version", fail)
    assert exit_code(["version"]) == 2
    assert "pip install 'plait[engine]'" in capsys.readouterr().err


def test_a_bug_is_not_dressed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'plait.typo'", name="plait.typo")

    monkeypatch.setattr("plait.cli.version.version", fail)
    with pytest.raises(ModuleNotFoundError):
        main(["version"])


def test_commands_and_groups_load() -> None:
    assert load_command("version").name == "version"
    assert set(load_command("models").commands) == {"list", "pull"}
    assert cli.build_group().commands.keys() == COMMANDS.keys()


def test_output_into_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m plait.cli.main run --example | true"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert "Traceback" not in result.stderr
