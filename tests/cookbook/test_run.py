"""What `python -m cookbook.run` does around the recipes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from cookbook.recipes import RECIPES, TAUGHT
from cookbook.run import choose, main
from cookbook.runner import TIMED_OUT, command, run_recipe
from cookbook.served import ANSWERER_NAME, POLICY_NAME, Server
from cookbook.workspace import Workspace
from plait.types.errors import ConfigError

NOWHERE = Server("http://127.0.0.1:9", "tml-none")


def test_a_recipe_brings_the_one_that_it_starts_from() -> None:
    assert [recipe.name for recipe in choose(["rl_loop"], False)] == [TAUGHT, "rl_loop"]
    assert len(choose([], False)) == len(RECIPES)
    assert 0 < len(choose([], True)) < len(RECIPES)


def test_an_unknown_recipe_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="there is no recipe 'dp0'"):
        choose(["dp0"], False)
    assert main(["--only", "dp0"]) == 2
    assert "dp0" in capsys.readouterr().err


def test_names_of_recipes_differ() -> None:
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)


def test_data_sets_are_the_same_every_time(tmp_path: Path) -> None:
    first, second = Workspace(tmp_path / "a"), Workspace(tmp_path / "b")
    files = [path.relative_to(first.folder) for path in first.folder.rglob("*.jsonl")]
    assert len(files) == 7
    for file in files:
        assert (first.folder / file).read_bytes() == (second.folder / file).read_bytes()
        assert all(json.loads(line) for line in (first.folder / file).read_text().splitlines())


def test_the_tokenizer_lies_under_the_names_that_recipes_use(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for name in (POLICY_NAME, ANSWERER_NAME):
        tokenizer = AutoTokenizer.from_pretrained(str(workspace.folder / name))
        assert [len(tokenizer.encode(mark)) for mark in ("<think>", "</think>", "<|im_end|>")] == [1, 1, 1]


def test_a_recipe_is_started_as_a_user_would(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    dpo = next(recipe for recipe in RECIPES if recipe.name == "dpo")
    assert command(dpo, workspace)[4:6] == ["-m", "tinker_cookbook.recipes.preference.dpo.train"]
    assert f"log_path={tmp_path / 'runs' / 'dpo'}" in command(dpo, workspace)


def test_a_recipe_that_does_not_end_is_ended(tmp_path: Path) -> None:
    recipe = replace(RECIPES[0], kill_at_step=None, limit_s=0.5)
    result = run_recipe(recipe, Workspace(tmp_path), NOWHERE)
    assert result.exit_code == TIMED_OUT
    assert not result.passed
    assert any("steps [] were done" in problem for problem in result.problems)


def test_a_recipe_that_fails_shows_why(tmp_path: Path) -> None:
    recipe = replace(RECIPES[0], kill_at_step=None, arguments={"no_such_argument": 1})
    result = run_recipe(recipe, Workspace(tmp_path), NOWHERE)
    assert result.exit_code == 1
    assert "no_such_argument" in result.problems[0]


def test_a_recipe_without_its_start_fails(tmp_path: Path) -> None:
    recipe = next(recipe for recipe in RECIPES if recipe.name == "rl_loop")
    result = run_recipe(recipe, Workspace(tmp_path), NOWHERE)
    assert result.problems == (f"{TAUGHT}, which this one starts from, left no checkpoint",)
