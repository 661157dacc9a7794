import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plait.config.environments import (
    AnyEnvironmentSettings,
    CalculatorSettings,
    DatasetSettings,
    FunctionSettings,
    ReasoningGymSettings,
)
from plait.environments import Environment, Example, Reply, make_environment
from plait.environments.calculator import evaluate
from plait.types.errors import ConfigError
from plait.types.messages import Message

SCORERS = str(Path(__file__).parent / "scorers.py")


def write_lines(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return str(path)


def gsm8k_lines(count: int) -> list[dict[str, Any]]:
    return [{"question": f"What is {n} + 1000?", "answer": f"{n} + 1000 = {n + 1000}\n#### {n + 1000:,}"} for n in range(count)]


def play(environment: Environment, example: Example, answers: list[str]) -> float:
    """Score as the controller does: with examples and state that went through msgpack."""
    example = msgspec.msgpack.decode(msgspec.msgpack.encode(example), type=Example)
    state = environment.setup(example)
    for turn in range(1, len(answers)):
        state = environment.turn(example, state, tuple(answers[:turn])).state
    score = environment.score(example, state, tuple(answers))
    environment.cleanup(example, state)
    return score.reward


@pytest.fixture
def all_settings(tmp_path: Path) -> list[AnyEnvironmentSettings]:
    return [
        ReasoningGymSettings(name="products", options={"min_digits": 1, "max_digits": 1}),
        ReasoningGymSettings(name="prime_factorization"),
        ReasoningGymSettings(name="gcd", answer_format="last_number", instruction="Think first."),
        ReasoningGymSettings(name="spell_backward", answer_format="tag"),
        DatasetSettings(path=write_lines(tmp_path / "gsm8k.jsonl", gsm8k_lines(100))),
        FunctionSettings(function=f"{SCORERS}:score", examples=f"{SCORERS}:examples"),
        CalculatorSettings(),
        CalculatorSettings(operations=("+", "-", "*"), min_value=0, max_value=9),
    ]


def test_every_environment_keeps_its_promises(all_settings: list[AnyEnvironmentSettings]) -> None:
    for settings in all_settings:
        environment, again = make_environment(settings), make_environment(settings)
        count = environment.count_evaluation(24)
        evaluation = [environment.example(index, "evaluation") for index in range(count)]
        train = [environment.example(index, "train") for index in range(100)]
        assert count >= 10
        assert len({example.messages for example in evaluation}) == count, "evaluation questions differ"
        assert not {example.messages for example in evaluation} & {example.messages for example in train}
        assert len({example.example_id for example in evaluation + train[:50]}) == count + 50
        assert [again.example(index, "train") for index in (7, 3)] == [train[7], train[3]]
        assert again.example(count - 1, "evaluation") == evaluation[-1]
        for example in evaluation[:5] + train[:5]:
            assert len(example.demonstration) == environment.max_turns
            assert play(environment, example, list(example.demonstration)) == 1.0
            assert play(again, example, ["!"] * environment.max_turns) == 0.0


def test_another_seed_gives_other_questions_and_the_same_holding_out() -> None:
    first, second = (
        make_environment(ReasoningGymSettings(name="products", options={"min_digits": 1, "max_digits": 1}, seed=seed))
        for seed in (0, 1)
    )
    trained = {first.example(index, "train").messages for index in range(200)}
    assert [first.example(index, "train") for index in range(9)] != [second.example(index, "train") for index in range(9)]
    assert not trained & {second.example(index, "evaluation").messages for index in range(second.count_evaluation(99))}


def test_reasoning_gym_answers_that_cannot_be_read_are_told_apart() -> None:
    environment = make_environment(ReasoningGymSettings(name="prime_factorization"))
    example = environment.example(0, "train")
    assert environment.score(example, {}, ("two times three",)).metrics == {"correct": 0.0, "unparsable": 1.0}
    tagged = make_environment(ReasoningGymSettings(name="gcd", answer_format="tag"))
    assert tagged.score(tagged.example(0, "train"), {}, ("4",)).metrics["unparsable"] == 1.0


def test_system_prompt_and_instruction() -> None:
    settings = ReasoningGymSettings(name="gcd", system_prompt="Be brief.", instruction="Answer with a number.")
    messages = make_environment(settings).example(0, "train").messages
    assert messages[0] == Message("system", "Be brief.")
    assert messages[1].role == "user"
    assert messages[1].content.endswith("\nAnswer with a number.")
    unset = make_environment(ReasoningGymSettings(name="gcd")).example(0, "train").messages
    assert [message.role for message in unset] == ["user"]


def test_gsm8k_answers_in_free_text(tmp_path: Path) -> None:
    environment = make_environment(DatasetSettings(path=write_lines(tmp_path / "a.jsonl", gsm8k_lines(20))))
    example = next(e for e in (environment.example(i, "train") for i in range(18)) if e.data["gold"] == "1,007")
    assert play(environment, example, ["The sum is 1007."]) == 1.0
    assert play(environment, example, ["The sum is 1008."]) == 0.0
    assert environment.score(example, {}, ("no idea",)).metrics == {"unparsable": 1.0}


def test_math_and_amc_formats(tmp_path: Path) -> None:
    math_lines = [{"problem": f"Halve {n}.", "solution": rf"It is $\boxed{{\frac{{{n}}}{{2}}}}$."} for n in range(1, 20)]
    environment = make_environment(DatasetSettings(path=write_lines(tmp_path / "math.jsonl", math_lines), format="math"))
    for index in range(5):
        example = environment.example(index, "train")
        assert play(environment, example, list(example.demonstration)) == 1.0
    amc_lines = [{"problem": f"What is {n}?", "answer": float(n)} for n in range(20)]
    amc = make_environment(DatasetSettings(path=write_lines(tmp_path / "amc.jsonl", amc_lines), format="amc"))
    example = amc.example(0, "train")
    assert play(amc, example, [rf"\boxed{{{example.data['gold']}}}"]) == 1.0


@pytest.mark.parametrize(
    ("bad_line", "words"),
    [
        ('{"question": "a", "answer": "no mark"}', r"bad\.jsonl:3: there is no gold answer"),
        ('{"question": "a", "answer": "x #### \\\\frac{1}{"}', r"bad\.jsonl:3: the gold answer"),
        ('{"question": "a"}', r"bad\.jsonl:3: field 'answer' is None"),
        ('{"question": ', r"bad\.jsonl:3 is not JSON"),
        ("[1]", r"bad\.jsonl:3 holds list"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad_line: str, words: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join([json.dumps(gsm8k_lines(1)[0]), "", bad_line]))
    with pytest.raises(ConfigError, match=words):
        make_environment(DatasetSettings(path=str(path)))


def test_held_out_file_and_leaks(tmp_path: Path) -> None:
    """A training line whose question is also held out is left out."""
    held_out = [{**line, "question": line["question"].upper()} for line in gsm8k_lines(5)]
    settings = DatasetSettings(
        path=write_lines(tmp_path / "a.jsonl", gsm8k_lines(20)), evaluation_path=write_lines(tmp_path / "b.jsonl", held_out)
    )
    environment = make_environment(settings)
    assert environment.count_evaluation(99) == 5
    trained = {environment.example(index, "train").data["gold"] for index in range(15)}
    assert trained == {f"{n + 1000:,}" for n in range(5, 20)}


def test_hub_data_without_the_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ConfigError, match="pip install datasets"):
        make_environment(DatasetSettings(path="openai/gsm8k:main"))


def test_hub_data(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeHub:
        @staticmethod
        def load_dataset(name: str, configuration: str | None, split: str) -> list[dict[str, Any]]:
            assert (name, configuration) == ("openai/gsm8k", "main")
            return gsm8k_lines({"train": 30, "test": 6}[split])

    monkeypatch.setitem(__import__("sys").modules, "datasets", FakeHub)
    environment = make_environment(DatasetSettings(path="openai/gsm8k:main", evaluation_path="openai/gsm8k:main@test"))
    assert environment.count_evaluation(99) == 6


def test_function_with_questions_from_a_file(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "q.jsonl", [{"question": f"q{n}", "index": n, "demonstration": str(n)} for n in range(30)])
    environment = make_environment(FunctionSettings(function=f"{SCORERS}:score", path=path))
    example = environment.example(4, "train")
    assert play(environment, example, [str(example.data["index"])]) == 1.0
    assert example.example_id.startswith("line-")


def test_function_examples_must_have_a_question() -> None:
    environment = make_environment(FunctionSettings(function=f"{SCORERS}:score", examples=f"{SCORERS}:two_fields"))
    with pytest.raises(TypeError, match="'question'"):
        environment.example(0, "train")


def test_calculator_turns() -> None:
    environment = make_environment(CalculatorSettings())
    example = environment.example(0, "train")
    expression, result = example.data["expression"], example.data["result"]
    assert expression in example.messages[-1].content
    reply = environment.turn(example, {}, (f"calc({expression})",))
    assert reply == Reply(Message("user", f"= {result}"), {})
    assert environment.turn(example, {}, (f"it is {result}",)).message is None
    assert environment.turn(example, {}, ("calc(two)",)).message is None
    assert environment.score(example, {}, (f"it is {result}",)).reward == 0.0
    assert environment.score(example, {}, (f"calc({expression})", f"It is {result}.")).reward == 1.0
    score = environment.score(example, {}, ("calc(1 + 1)", "2"))
    assert score.reward == 0.0
    assert score.metrics == {"call_valid": 1.0, "call_correct": 0.0, "answer_correct": 0.0}


@pytest.mark.parametrize(
    "expression",
    ["9**9**9", "__import__('os')", "1/2", "a", "", "1" * 65, "True + 1", "1.5 + 1", "(" * 30, "f(1)", "1 if 1 else 2", "\x00"],
)
def test_calculator_executes_nothing(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        evaluate(expression)


def test_calculator_arithmetic() -> None:
    assert evaluate(" (3 + 4) * -2 - 1 ") == -15
