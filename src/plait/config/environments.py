"""Which questions a task asks and how answers are scored."""

from typing import Annotated, Any, Literal

from pydantic import Field

from plait.config.base import Settings

PositiveSeconds = Annotated[float, Field(gt=0)]


class DelaySettings(Settings):
    """An artificial wait that stands for a slow verifier or tool."""

    kind: Literal["none", "fixed", "long_tailed"] = "none"
    """`long_tailed` is log-normal."""
    mean_s: Annotated[float, Field(ge=0)] = 0.0
    """Mean length of the wait."""
    sigma: Annotated[float, Field(gt=0)] = 1.0
    """Shape of the log-normal of `long_tailed`."""


class EnvironmentSettings(Settings):
    """What every environment has."""

    seed: int = 0
    """Chooses which questions are generated or how a data set is shuffled."""
    system_prompt: str | None = None
    """Replaces the chat template's own system message; an empty string removes it."""
    setup_timeout_s: PositiveSeconds = 60.0
    """Limit of asking for a question, of set-up and of clean-up."""
    turn_timeout_s: PositiveSeconds = 30.0
    """Limit of one turn of the environment."""
    score_timeout_s: PositiveSeconds = 10.0
    """Limit of scoring one episode."""
    delay: DelaySettings = DelaySettings()
    """Waited for in every turn and in scoring."""
    max_episode_retries: Annotated[int, Field(ge=0)] = 1
    """How often an episode whose environment failed starts again before its group is dropped."""
    require_stop: bool = True
    """Pay only answers that the policy ended by itself; else it never learns to stop."""


class ReasoningGymSettings(EnvironmentSettings):
    """Any task of the reasoning-gym package."""

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    name: str
    """The data set's name in reasoning-gym, such as "gcd"."""
    options: dict[str, Any] = {}
    """Passed on to reasoning-gym; its own `seed` and `size` are set by Plait."""
    answer_format: Literal["last_number", "whole", "tag"] = "whole"
    """How the answer is cut out of the text: its last number, all of it, or what <answer> tags enclose."""
    instruction: str = ""
    """Appended to each question."""


class DatasetSettings(EnvironmentSettings):
    """Questions from a JSONL file or a hub data set, scored by math-verify."""

    kind: Literal["dataset"] = "dataset"
    path: str
    """A JSONL file, or the id of a hub data set."""
    format: Literal["gsm8k", "math", "amc"] = "gsm8k"
    """Which fields hold question and answer; see [environments](environments.md)."""
    split: str = "train"
    """Of a hub data set."""
    evaluation_path: str | None = None
    """Held-out questions; without it the last tenth of `path` is held out."""
    instruction: str = ""
    """Appended to each question."""


class FunctionSettings(EnvironmentSettings):
    """A Python callable scores; see docs/your-own-reward.md."""

    kind: Literal["function"] = "function"
    function: str
    """"module:name" or "file.py:name" of a callable (example, answer) -> float."""
    path: str | None = None
    """A JSONL file with a `question` in each line; without it `examples` is called."""
    examples: str | None = None
    """"module:name" of a callable (index, seed) -> dict with a `question`."""


class CalculatorSettings(EnvironmentSettings):
    """Two turns: the policy calls a calculator, reads its result, and answers."""

    kind: Literal["calculator"] = "calculator"
    min_value: int = 10
    """Smallest operand."""
    max_value: int = 99
    """Largest operand."""
    operations: tuple[Literal["+", "-", "*"], ...] = ("+",)
    """Drawn from for each question."""


AnyEnvironmentSettings = Annotated[
    ReasoningGymSettings | DatasetSettings | FunctionSettings | CalculatorSettings, Field(discriminator="kind")
]


def num_turns(environment: EnvironmentSettings) -> int:
    """Most answers of the policy in one episode."""
    return 2 if isinstance(environment, CalculatorSettings) else 1
