r"""Questions with gold answers from a file or hub, scored by `rewards.math`.

- Formats: "gsm8k" (question, answer ending in "#### 42"), "math" (problem, solution with \boxed{...}), "amc" (problem, answer).
- Every gold answer is read when the data set is loaded; one that cannot be read is an error that names its line.
"""

import msgspec

from plait.config.environments import DatasetSettings
from plait.environments.protocol import Example, Score, SingleTurnEnvironment, Split, State, append_instruction, prompt_messages
from plait.environments.records import Record, load_records
from plait.environments.split import ListedSplit
from plait.rewards.answers import boxed
from plait.rewards.math import Verdict, check_math, read_gold, warm_up
from plait.types.errors import ConfigError

GOLD_MARK = "####"


class Question(msgspec.Struct, frozen=True):
    example_id: str
    text: str
    gold: str
    worked_answer: str


class DatasetEnvironment(SingleTurnEnvironment):
    def __init__(self, settings: DatasetSettings) -> None:
        warm_up()
        self._settings = settings
        evaluation = None if settings.evaluation_path is None else self._load(settings.evaluation_path, "evaluation")
        train = self._load(settings.path, "train")
        self._split = ListedSplit(train, evaluation, lambda question: question.text, settings.seed, settings.path)

    def example(self, index: int, split: Split) -> Example:
        question = self._split.entry(index, split)
        return Example(
            example_id=question.example_id,
            messages=prompt_messages(append_instruction(question.text, self._settings.instruction), self._settings.system_prompt),
            data={"gold": question.gold},
            demonstration=(question.worked_answer,),
        )

    def count_evaluation(self, limit: int) -> int:
        return self._split.count_evaluation(limit)

    def score(self, example: Example, state: State, answers: tuple[str, ...]) -> Score:
        verdict = check_math(example.data["gold"], answers[-1])
        return Score(float(verdict is Verdict.CORRECT), {"unparsable": float(verdict is Verdict.UNPARSABLE)})

    def _load(self, path: str, list_name: str) -> list[Question]:
        records = load_records(path, self._settings.split)
        if not records:
            raise ConfigError(f"{path} holds no questions.", "Give a file with one JSON object a line.")
        return [self._read(record, f"{list_name}-{record.number}") for record in records]

    def _read(self, record: Record, example_id: str) -> Question:
        text, worked_answer, gold = self._fields(record)
        if gold is None:
            raise ConfigError(
                f"{record.place}: there is no gold answer in {worked_answer!r}.",
                f"Mend the line, or its format is not {self._settings.format!r}.",
            )
        try:
            return Question(example_id, text, read_gold(gold), worked_answer)
        except ValueError as error:
            raise ConfigError(f"{record.place}: {error}.", "Mend the line or remove it.") from error

    def _fields(self, record: Record) -> tuple[str, str, str | None]:
        """Question, worked answer, and the gold answer if there is one."""
        match self._settings.format:
            case "gsm8k":
                answer = record.text("answer")
                return record.text("question"), answer, answer.rsplit(GOLD_MARK, 1)[1] if GOLD_MARK in answer else None
            case "math":
                solution = record.text("solution")
                return record.text("problem"), solution, boxed(solution)
            case "amc":
                answer = record.text("answer").removesuffix(".0")
                return record.text("problem"), f"\\boxed{{{answer}}}", answer
