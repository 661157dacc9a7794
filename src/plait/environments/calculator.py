"""Two turns with a tool: the policy writes calc(47 + 38), the environment answers "= 85", the policy says 85.

The reward is 1 if a valid call was made and the last number of the answer is right, else 0. An answer without a valid call
ends the episode. Metrics: `call_valid`, `call_correct` (the call gives the right result), `answer_correct`.
"""

import ast
import operator
import random
from collections.abc import Callable

import msgspec

from plait.config.environments import CalculatorSettings
from plait.environments.protocol import Example, Reply, Score, Split, State, prompt_messages
from plait.environments.split import GeneratedSplit
from plait.rewards.answers import calculator_call, last_number
from plait.types.errors import ConfigError
from plait.types.messages import Message
from plait.types.python_syntax import parse_expression
from plait.types.seeds import derive_seed

MAX_EXPRESSION_CHARACTERS = 64
"""Bounds the size of every number in it, too."""
_OPERATIONS: dict[type, Callable[[int, int], int]] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


class Question(msgspec.Struct, frozen=True):
    expression: str
    result: int

    @property
    def text(self) -> str:
        return f"What is {self.expression}? Use the calculator: write calc(...), then say the result."


class CalculatorEnvironment:
    max_turns = 2
    stateless = True

    def __init__(self, settings: CalculatorSettings) -> None:
        if settings.min_value > settings.max_value or not settings.operations:
            raise ConfigError(
                f"calculator: min_value {settings.min_value} and max_value {settings.max_value} with operations "
                f"{list(settings.operations)} leave no question.",
                "min_value must not exceed max_value, and operations must not be empty.",
            )
        self._settings = settings
        self._split = GeneratedSplit(self._draw, lambda question: question.text, "calculator")

    def example(self, index: int, split: Split) -> Example:
        question = self._split.entry(index, split)
        return Example(
            example_id=f"{split}-{index}",
            messages=prompt_messages(question.text, self._settings.system_prompt),
            data={"expression": question.expression, "result": question.result},
            demonstration=(f"calc({question.expression})", str(question.result)),
        )

    def count_evaluation(self, limit: int) -> int:
        return self._split.count_evaluation(limit)

    def setup(self, example: Example) -> State:
        return {}

    def turn(self, example: Example, state: State, answers: tuple[str, ...]) -> Reply:
        result = call_result(answers[-1])
        return Reply(None if result is None else Message("user", f"= {result}"), state)

    def score(self, example: Example, state: State, answers: tuple[str, ...]) -> Score:
        expected = example.data["result"]
        result = call_result(answers[0])
        answered = len(answers) == 2 and last_number(answers[1]) == str(expected)
        metrics = {
            "call_valid": float(result is not None),
            "call_correct": float(result == expected),
            "answer_correct": float(answered),
        }
        return Score(float(result is not None and answered), metrics)

    def cleanup(self, example: Example, state: State) -> None:
        return None

    def _draw(self, index: int, split: Split) -> Question:
        random_state = random.Random(derive_seed("calculator", self._settings.seed, split, index))
        left, right = (random_state.randint(self._settings.min_value, self._settings.max_value) for _ in range(2))
        expression = f"{left} {random_state.choice(self._settings.operations)} {right}"
        return Question(expression, evaluate(expression))


def call_result(answer: str) -> int | None:
    """What the first calc(...) of an answer gives; None if there is no valid one."""
    expression = calculator_call(answer)
    if expression is None:
        return None
    try:
        return evaluate(expression)
    except ValueError:
        return None


def evaluate(expression: str) -> int:
    """Integer arithmetic with + - * and brackets. Raise ValueError for anything else; nothing is executed."""
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        raise ValueError(f"the expression has {len(expression)} characters; {MAX_EXPRESSION_CHARACTERS} are allowed")
    try:
        return _evaluate_node(parse_expression(expression.strip()).body)
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"{expression!r} is not arithmetic") from error


def _evaluate_node(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate_node(operand)
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](_evaluate_node(left), _evaluate_node(right))
    raise ValueError(f"{ast.unparse(node)!r} is not integer arithmetic")
