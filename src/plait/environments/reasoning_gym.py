"""Any task of the reasoning-gym package, scored by its own verifier.

- reasoning-gym makes question i of a seed; each run of BLOCK_SIZE indices has a seed of its own, so there is no end.
- An entry is made again where it is needed, and must come out the same: nothing of it travels but its question.
- Several verifiers raise ValueError for an answer that is not in the form they expect. Where the verifier accepts the right
  answer, that is the answer's fault: reward 0, metric `unparsable`.
"""

import difflib
import inspect
from functools import lru_cache
from typing import Any

from plait.config.environments import ReasoningGymSettings
from plait.environments.protocol import Example, Score, SingleTurnEnvironment, Split, State, append_instruction, prompt_messages
from plait.environments.split import GeneratedSplit
from plait.rewards.answers import EXTRACTORS
from plait.types.errors import ConfigError
from plait.types.seeds import derive_seed

BLOCK_SIZE = 10_000
"""Some tasks prepare their whole size up front, and one allows no more than 20,000."""
MAX_SEED = 2**31
RESERVED_OPTIONS = ("seed", "size")


class ReasoningGymEnvironment(SingleTurnEnvironment):
    def __init__(self, settings: ReasoningGymSettings) -> None:
        self._settings = settings
        self._extract = EXTRACTORS[settings.answer_format]
        self._block = lru_cache(maxsize=4)(self._make_block)
        name = f"reasoning-gym task {settings.name!r} with options {settings.options}"
        self._split: GeneratedSplit[dict[str, Any]] = GeneratedSplit(self._draw, lambda entry: entry["question"], name)
        _check_options(settings)
        self._draw(0, "train")

    def example(self, index: int, split: Split) -> Example:
        entry = self._split.entry(index, split)
        question = append_instruction(entry["question"], self._settings.instruction)
        return Example(
            example_id=f"{split}-{index}",
            messages=prompt_messages(question, self._settings.system_prompt),
            data={"index": index, "split": split, "question": entry["question"], "answer": entry["answer"]},
            demonstration=self._demonstration(entry["answer"]),
        )

    def count_evaluation(self, limit: int) -> int:
        return self._split.count_evaluation(limit)

    def score(self, example: Example, state: State, answers: tuple[str, ...]) -> Score:
        entry = self._split.entry(example.data["index"], example.data["split"])
        if entry["question"] != example.data["question"]:
            raise RuntimeError(f"reasoning-gym made another question for {example.example_id} than before: {entry['question']!r}")
        reward = self._verify(self._extract(answers[-1]), entry)
        metrics = {"correct": float(reward is not None and reward >= 1), "unparsable": float(reward is None)}
        return Score(reward or 0.0, metrics)

    def _verify(self, answer: str | None, entry: dict[str, Any]) -> float | None:
        """None if the answer cannot be read."""
        if answer is None:
            return None
        verifier = self._block(0, "train")
        try:
            return float(verifier.score_answer(answer=answer, entry=entry))
        except ValueError:
            if entry["answer"] is not None:
                verifier.score_answer(answer=entry["answer"], entry=entry)
            return None

    def _demonstration(self, answer: str | None) -> tuple[str, ...]:
        if answer is None:
            return ()
        return (f"<answer>{answer}</answer>",) if self._settings.answer_format == "tag" else (answer,)

    def _draw(self, index: int, split: Split) -> dict[str, Any]:
        block, position = divmod(index, BLOCK_SIZE)
        return self._block(block, split)[position]

    def _make_block(self, block: int, split: Split) -> Any:
        from reasoning_gym.factory import create_dataset

        seed = derive_seed("reasoning_gym", self._settings.seed, split, block) % MAX_SEED
        try:
            return create_dataset(self._settings.name, seed=seed, size=BLOCK_SIZE, **self._settings.options)
        except (AssertionError, TypeError, ValueError) as error:
            raise ConfigError(
                f"reasoning-gym task {self._settings.name!r} refuses options {self._settings.options}: {error}",
                "See its configuration class in the reasoning-gym package.",
            ) from error


def _check_options(settings: ReasoningGymSettings) -> None:
    """Name what is unknown, and the nearest that is known."""
    try:
        import reasoning_gym  # noqa: F401
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ConfigError(
            f"reasoning-gym cannot be imported: {error}.", "Install it: pip install 'plait[environments]'."
        ) from error
    _require_known(settings.name, list(DATASETS), "reasoning-gym task")
    known = [name for name in inspect.signature(DATASETS[settings.name][1]).parameters if name not in RESERVED_OPTIONS]
    for option in settings.options:
        _require_known(option, known, f"option of reasoning-gym task {settings.name!r}")


def _require_known(name: str, known: list[str], what: str) -> None:
    if name in known:
        return
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)
    raise ConfigError(
        f"{name!r} is not an {what}." if what[0] in "aeiou" else f"{name!r} is not a {what}.", f"Did you mean {nearest[0]!r}?"
    )
