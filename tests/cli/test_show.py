import json
from pathlib import Path
from typing import Any

import pytest

from plait.cli.main import main
from plait.cli.show import _ranges
from tests.observe.sample_run import write_sample_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_sample_run(tmp_path / "demo", num_steps=5)
    return tmp_path


def show(capsys: Any, runs: Path, *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as end:
        main(["show", *arguments, "--runs", str(runs)])
    captured = capsys.readouterr()
    assert end.value.code == code, captured.err
    text: str = captured.out if code == 0 else captured.err
    assert "\x1b" not in text
    return text


def test_samples_are_grouped_by_question_with_reward_and_stop_reason(runs: Path, capsys: Any) -> None:
    text = show(capsys, runs, "demo", "gcd")
    assert text.startswith("gcd, step 5: 32 answers, mean reward 0.875\n"), "the last step is the default"
    assert text.count("question ") == 4
    assert text.count("What is the greatest common divisor of 12 and 18?") == 1
    assert "  reward 1  stop token, 3 tokens\n    > The answer is 6.\n" in text
    assert "  reward 1  length, 3 tokens\n" in text
    assert text.count("  reward 0  ") == 4


def test_both_turns_are_shown_with_what_came_between(runs: Path, capsys: Any) -> None:
    text = show(capsys, runs, "demo", "calculator")
    assert "    > <call>12 + 30</call>\n    < result: 42\n    > The answer is 6.\n" in text


def test_a_step_can_be_chosen_and_its_answers_cannot_steer_the_terminal(runs: Path, capsys: Any) -> None:
    text = show(capsys, runs, "demo", "gcd", "--step", "1")
    assert "gcd, step 1: 32 answers, mean reward 0.000" in text
    assert "␛[31m" in text


def test_the_evaluation_is_shown_by_version(runs: Path, capsys: Any) -> None:
    assert show(capsys, runs, "demo", "gcd", "--evaluation").startswith("gcd, version 5: 8 answers, mean reward 0.750")
    assert show(capsys, runs, "demo", "gcd", "--evaluation", "--step", "0").startswith("gcd, version 0: 8 answers")


def test_json_has_every_sample(runs: Path, capsys: Any) -> None:
    shown = json.loads(show(capsys, runs, "demo", "calculator", "--json"))
    assert (shown["run"], shown["task"], shown["step"]) == ("demo", "calculator", 5)
    assert len(shown["samples"]) == 32
    first = shown["samples"][0]
    assert first["answers"] == ["<call>12 + 30</call>", "The answer is 6."]
    assert (first["feedback"], first["reward"], first["stop"]) == (["result: 42"], 1.0, "length")
    assert (first["group"], first["sample"], first["policy_version"], first["sampled_tokens"]) == (0, 0, 4, 6)


def test_colours_are_for_terminals(runs: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with pytest.raises(SystemExit):
        main(["show", "demo", "gcd", "--runs", str(runs)])
    assert "\x1b[1;32m  reward 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope", "gcd"], "there is no run 'nope'"),
        (["demo", "nope"], "run demo has no samples of a task 'nope'.\nIts tasks: calculator, gcd, word_sorting."),
        (["demo", "../../demo"], "no samples of a task '../../demo'"),
        (["demo", "gcd", "--step", "3"], "task 'gcd' has no samples of step 3.\nThere are: 1, 5."),
        (["demo", "gcd", "--evaluation", "--step", "3"], "no samples of evaluation 3.\nThere are: 0, 5."),
    ],
)
def test_what_is_not_there_is_an_error_that_says_what_is(runs: Path, capsys: Any, arguments: list[str], message: str) -> None:
    assert message in show(capsys, runs, *arguments, code=2)


def test_ranges() -> None:
    assert _ranges([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
