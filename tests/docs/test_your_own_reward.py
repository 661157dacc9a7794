"""The page "Your own reward in 20 lines": its file runs, and only what the page says is its own to write is long."""

from pathlib import Path
from typing import Any

from plait.environments import Score
from plait.models.tiny import make_tiny_model
from tests.docs.pages import MODEL, ROOT, blocks_of, with_tiny_model, write_files
from tests.docs.test_snippets import run_python

PAGE = ROOT / "docs" / "your-own-reward.md"


def test_the_file_runs_on_a_tiny_model(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    file, model = tmp_path / "words.py", make_tiny_model(tmp_path / "tiny")
    text = file.read_text(encoding="utf-8")
    assert MODEL in text
    assert '"steps": 8' in text
    file.write_text(with_tiny_model(text, model).replace('"steps": 8', '"steps": 2'), encoding="utf-8")
    lines = run_python(["words.py"], tmp_path).splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["step 1", "step 2"]
    assert "by version: {0: " in lines[2]
    assert (tmp_path / "runs" / "words" / "tasks" / "words" / "steps" / "000002").is_dir()


def test_it_takes_about_twenty_lines() -> None:
    text = next(block.text for block in blocks_of(PAGE) if block.name == "words.py")
    assert len([line for line in text.splitlines() if line.strip()]) <= 20


def test_its_reward_is_highest_for_the_number_of_words_asked_for(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    words, scores = load(tmp_path / "words.py"), load(tmp_path / "scores.py")
    example = words["question"](5, 7)
    assert example == words["question"](5, 7)
    right = " ".join(["word"] * example["words"])
    assert words["reward"](example, right) == 1.0
    assert 0.0 < words["reward"](example, right + " more") < 1.0
    assert words["reward"](example, "") == 0.0
    assert scores["reward"](example, right) == Score(1.0, {"correct": 1.0, "words": float(example["words"])})


def load(file: Path) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "page", "__file__": str(file)}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), namespace)
    return namespace
