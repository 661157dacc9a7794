"""Python in the documentation runs as it stands, page after page in one folder, with a tiny model in the place of the real one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plait.models.tiny import make_tiny_model
from tests.docs.pages import ROOT, blocks_of, with_tiny_model

NOTEBOOK_PAGES = ("README.md", "docs/python-api.md", "docs/resume-and-state.md", "docs/environments.md")
"""In the order in which they are run: a later page may look at the runs that an earlier one has made."""
RUNNER = """
import sys
for place in sys.argv[1:]:
    namespace = {"__name__": "__main__"}
    text = open(place, encoding="utf-8").read()
    exec(compile(text, place, "exec"), namespace)
"""
GUESSING = """
game = GuessTheNumber()
example = game.example(1, "train")
assert game.turn(example, {"guesses": 0}, ("3",)) == Reply(Message("user", "more"), {"guesses": 1})
assert game.turn(example, {"guesses": 1}, ("3", "37")).message is None
assert game.score(example, {}, ("3", "37")) == Score(1.0, {"guesses": 2.0})
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the pages print."""
    folder = tmp_path_factory.mktemp("notebook")
    model = make_tiny_model(folder / "tiny")
    scripts = [write_script(folder, name, model) for name in NOTEBOOK_PAGES]
    scripts[-1].write_text(scripts[-1].read_text(encoding="utf-8") + GUESSING, encoding="utf-8")
    return run_python(["-c", RUNNER, *map(str, scripts)], folder)


def write_script(folder: Path, page: str, model: Path) -> Path:
    """All blocks of a page that are run, as one script; its lines have the page's numbers."""
    lines: list[str] = []
    for block in blocks_of(ROOT / page):
        if block.language == "python" and not block.name:
            lines += [""] * (block.line - 1 - len(lines)) + with_tiny_model(block.text, model).splitlines()
    script = folder / Path(page).with_suffix(".py").name
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return script


def run_python(arguments: list[str], folder: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    result = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_snippets_run_and_print_what_the_pages_say(output: str) -> None:
    assert "gcd 2 " in output
    assert "sums step 2: reward" in output
    assert "unknown key; it belongs to tasks.optimizer.learning_rate" in output
    assert "sums is at version 2 and asks question 8 next" in output
