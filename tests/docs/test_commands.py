"""Commands in the documentation exist, with the arguments and options that they are given; cheap ones are run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plait.cli.main import COMMANDS, load_command
from plait.models.tiny import make_tiny_model
from tests.docs.pages import MODEL, PAGES, ROOT, all_blocks, blocks_of

LINES = [(block.place, line) for block in all_blocks("bash") for line in block.text.splitlines()]
PLAIT_LINES = [line for _, line in LINES if line.startswith("plait ")]
MENTIONED = sorted(
    {
        (name, path.relative_to(ROOT).as_posix())
        for path in [*PAGES, *(ROOT / "src").rglob("*.py")]
        for name in re.findall(r"`plait ([a-z]+)", path.read_text(encoding="utf-8"))
    }
)
"""Commands that a page or a program's own words name, and where."""
NAMED_OPTIONS = [
    (path.relative_to(ROOT).as_posix(), text.split()[0], option.partition("=")[0])
    for path in PAGES
    for text in re.findall(r"`plait ([a-z]+ [^`]*--[^`]*)`", path.read_text(encoding="utf-8"))
    for option in re.findall(r"--[a-z-]+", text)
]
"""(page, command, option) in running text, such as `plait export --merged`."""
MAKE_LINES = [line for _, line in LINES if line.startswith("make ")]


@pytest.mark.parametrize("line", PLAIT_LINES)
def test_plait_commands_parse(line: str) -> None:
    _, name, *arguments = shlex.split(line, comments=True)
    command = load_command(name)
    if hasattr(command, "commands"):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    command.make_context(name, arguments)  # parses, raises for what is unknown or missing, and does not call


def test_every_command_that_is_named_exists() -> None:
    assert len(MENTIONED) > 50
    assert not [(name, where) for name, where in MENTIONED if name not in COMMANDS]


def test_every_option_that_is_named_exists() -> None:
    known = {name: options_of(load_command(name)) for _, name, _ in NAMED_OPTIONS}
    assert len(NAMED_OPTIONS) > 5
    assert not [(page, name, option) for page, name, option in NAMED_OPTIONS if option not in known[name]]


def options_of(command: Any) -> set[str]:
    """Of a command, or of all commands of a group."""
    commands = [command, *getattr(command, "commands", {}).values()]
    return {option for one in commands for parameter in one.params for option in parameter.opts}


@pytest.mark.parametrize("line", MAKE_LINES)
def test_make_targets_exist(line: str) -> None:
    targets = [word for word in shlex.split(line, comments=True)[1:] if "=" not in word]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets
    assert not [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)]


def test_there_are_commands_to_test() -> None:
    assert PLAIT_LINES
    assert MAKE_LINES


def test_the_readmes_settings_can_be_estimated(tmp_path: Path) -> None:
    """`plait run --dry-run tasks.toml` on the file that the README shows."""
    settings = next(block.text for block in blocks_of(ROOT / "README.md") if block.language == "toml")
    model = make_tiny_model(tmp_path / "tiny")
    (tmp_path / "tasks.toml").write_text(settings.replace(MODEL, str(model)), encoding="utf-8")
    command = [sys.executable, "-m", "plait.cli.main", "run", "--dry-run", "tasks.toml"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    assert "memory" in result.stdout
    assert "gcd: 20 steps" in result.stdout
