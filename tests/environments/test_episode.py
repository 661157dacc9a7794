import asyncio
import gc
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from plait.config.environments import CalculatorSettings, DelaySettings, EnvironmentSettings, FunctionSettings
from plait.environments import EnvironmentPool, Example, Reply, Score, StageFailure, render_demonstration, run_episode
from plait.environments.delay import delay_s
from plait.environments.protocol import State
from plait.types.errors import ConfigError, EnvironmentFailure, WorkerFailure
from plait.types.messages import Message
from plait.types.policy import PolicyVersion
from plait.types.sampling import StopReason
from plait.types.trajectory import Segment, Trajectory

POLICY = PolicyVersion("local", "task", 4)
SCORERS = str(Path(__file__).parent / "scorers.py")
END, USER, ASSISTANT = 1, 2, 3
FIRST_PAIR = 1000
EXAMPLE = Example("e-1", (Message("user", "question"),), {"gold": "x"}, ("first", "second"))


class DriftingTokenizer:
    """Characters are ids from 10; ids from FIRST_PAIR decode to two characters, but encoding never makes one."""

    stop_token_ids = (END,)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(10 + ord(character) for character in text)

    def decode_text(self, tokens: Sequence[int]) -> str:
        return "".join(self._text(token) for token in tokens if token >= 10)

    def render_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        turns = [(USER, *self.encode(message.content), END) for message in messages]
        return (*(token for turn in turns for token in turn), ASSISTANT)

    def render_followup(self, message: Message, previous_ended: bool) -> tuple[int, ...]:
        return (*(() if previous_ended else (END,)), USER, *self.encode(message.content), END, ASSISTANT)

    @staticmethod
    def _text(token: int) -> str:
        return "ab"[token % 2] + "cd"[token // 2 % 2] if token >= FIRST_PAIR else chr(token - 10)


class FakeEnvironment:
    """Says "more" until `max_turns`; fails as often as told in each stage."""

    name = "task"

    def __init__(self, max_turns: int = 2, failures: dict[str, int] | None = None) -> None:
        self.max_turns = max_turns
        self.calls: list[str] = []
        self.seen: list[tuple[State, tuple[str, ...]]] = []
        self._failures = dict(failures or {})

    async def setup(self, example: Example) -> State:
        self._enter("setup")
        return {"turns": 0}

    async def turn(self, example: Example, state: State, answers: tuple[str, ...]) -> Reply:
        self._enter("turn")
        self.seen.append((state, answers))
        return Reply(None if answers[-1] == "stop" else Message("user", "more"), {"turns": state["turns"] + 1})

    async def score(self, example: Example, state: State, answers: tuple[str, ...]) -> Score:
        self._enter("score")
        self.seen.append((state, answers))
        return Score(1.0, {"turns": float(state["turns"])})

    async def cleanup(self, example: Example, state: State) -> None:
        self._enter("cleanup")

    def _enter(self, stage: Any) -> None:
        self.calls.append(stage)
        if self._failures.get(stage, 0) > 0:
            self._failures[stage] -= 1
            raise StageFailure("task", stage, "error", "told to")


class Policy:
    """Answers with prepared tokens and records what it was asked with."""

    def __init__(self, *answers: tuple[int, ...], stop: str = StopReason.STOP_TOKEN) -> None:
        self._answers = answers
        self._stop = stop
        self.contexts: list[tuple[int, ...]] = []
        self.kept: list[bool] = []

    async def __call__(self, context: tuple[int, ...], turn: int, keep_cache: bool) -> Segment:
        self.contexts.append(context)
        self.kept.append(keep_cache)
        tokens = self._answers[turn]
        return Segment(tokens, tuple(-0.5 for _ in tokens), POLICY, self._stop)


def ended(text: str) -> tuple[int, ...]:
    return (*DriftingTokenizer().encode(text), END)


def episode(environment: Any, policy: Any, settings: EnvironmentSettings | None = None, **options: Any) -> Trajectory:
    limits = {"max_new_tokens": 10, "max_context_tokens": 100_000, **options}
    settings = settings or EnvironmentSettings()
    return asyncio.run(run_episode(environment, DriftingTokenizer(), policy, settings, EXAMPLE, 3, 5, **limits))


def test_sampled_ids_are_trained_on_and_never_encoded_again() -> None:
    """Ten thousand random ids, most of which no encoding would give back."""
    random_state = random.Random(0)
    first, second = (tuple(random_state.randrange(FIRST_PAIR, 50_000) for _ in range(5_000)) for _ in range(2))
    tokenizer, policy = DriftingTokenizer(), Policy((*first, END), (*second, END))
    assert tokenizer.encode(tokenizer.decode_text(first)) != first
    trajectory = episode(FakeEnvironment(), policy)
    prompt, followup = tokenizer.render_prompt(EXAMPLE.messages), tokenizer.render_followup(Message("user", "more"), True)
    assert [segment.tokens for segment in trajectory.segments] == [prompt, (*first, END), followup, (*second, END)]
    assert policy.contexts == [prompt, (*prompt, *first, END, *followup)]
    assert [segment.is_sampled for segment in trajectory.segments] == [False, True, False, True]
    assert trajectory.num_sampled_tokens == 10_002
    assert policy.kept == [True, False]


def test_a_trajectory_says_where_it_came_from() -> None:
    environment = FakeEnvironment()
    trajectory = episode(environment, Policy(ended("a"), ended("b")))
    assert (trajectory.environment, trajectory.example_id) == ("task", "e-1")
    assert (trajectory.group_index, trajectory.sample_index) == (3, 5)
    assert (trajectory.reward, trajectory.stop, trajectory.metrics) == (1.0, "stop_token", {"turns": 1.0})
    assert environment.calls == ["setup", "turn", "score", "cleanup"]
    assert environment.seen == [({"turns": 0}, ("a",)), ({"turns": 1}, ("a", "b"))]


def test_the_environment_may_end_it() -> None:
    trajectory = episode(FakeEnvironment(max_turns=5), Policy(ended("stop")))
    assert len(trajectory.segments) == 2
    assert trajectory.stop == "stop_token"


@pytest.mark.parametrize("stop", [StopReason.LENGTH, StopReason.CONTEXT])
def test_an_answer_cut_off_is_the_policys_fault(stop: StopReason) -> None:
    environment = FakeEnvironment()
    trajectory = episode(environment, Policy(ended("a"), stop=stop))
    assert (trajectory.reward, trajectory.stop) == (0.0, stop)
    assert environment.calls == ["setup", "cleanup"]


def test_without_require_stop_a_cut_off_answer_counts_and_gets_its_end() -> None:
    policy = Policy(ended("a")[:-1], ended("b")[:-1], stop=StopReason.LENGTH)
    trajectory = episode(FakeEnvironment(), policy, EnvironmentSettings(require_stop=False))
    assert (trajectory.reward, trajectory.stop) == (1.0, "length")
    assert trajectory.segments[2].tokens[0] == END


def test_a_stop_string_is_the_policys_own_end() -> None:
    trajectory = episode(FakeEnvironment(), Policy(ended("a")[:-1], ended("b")[:-1], stop=StopReason.STOP_STRING))
    assert (trajectory.reward, trajectory.segments[2].tokens[0]) == (1.0, END)


def test_a_turn_that_does_not_fit_is_not_begun() -> None:
    policy = Policy(ended("a"), ended("b"))
    prompt_tokens = len(DriftingTokenizer().render_prompt(EXAMPLE.messages))
    trajectory = episode(FakeEnvironment(), policy, max_context_tokens=prompt_tokens + 12)
    assert (trajectory.stop, trajectory.reward, len(policy.contexts)) == ("context", 0.0, 1)
    environment, unused = FakeEnvironment(), Policy()
    assert episode(environment, unused, max_context_tokens=prompt_tokens).stop == "context"
    assert environment.calls == ["setup", "cleanup"]


@pytest.mark.parametrize("stage", ["setup", "turn", "score"])
def test_a_failure_starts_again_from_zero(stage: str) -> None:
    environment = FakeEnvironment(failures={stage: 1})
    reported: list[StageFailure] = []
    trajectory = episode(environment, Policy(ended("a"), ended("b")), on_failure=reported.append)
    assert (trajectory.reward, trajectory.metrics) == (1.0, {"turns": 1.0})
    assert len(trajectory.segments) == 4
    assert [failure.stage for failure in reported] == [stage]
    assert environment.calls[-4:] == ["setup", "turn", "score", "cleanup"]
    assert environment.calls.count("cleanup") == 2


def test_retries_run_out() -> None:
    environment = FakeEnvironment(failures={"score": 9})
    reported: list[StageFailure] = []
    with pytest.raises(EnvironmentFailure, match="told to"):
        episode(environment, Policy(ended("a"), ended("b")), EnvironmentSettings(max_episode_retries=2), on_failure=reported.append)
    assert len(reported) == 3
    assert environment.calls.count("cleanup") == 3


def test_a_failed_cleanup_is_reported_and_keeps_the_score() -> None:
    reported: list[StageFailure] = []
    trajectory = episode(FakeEnvironment(failures={"cleanup": 1}), Policy(ended("a"), ended("b")), on_failure=reported.append)
    assert trajectory.reward == 1.0
    assert len(reported) == 1


def test_cleanup_runs_when_the_engine_fails_or_the_episode_is_cancelled() -> None:
    async def fail(context: tuple[int, ...], turn: int, keep_cache: bool) -> Segment:
        raise WorkerFailure("the engine is gone")

    environment = FakeEnvironment()
    with pytest.raises(WorkerFailure):
        episode(environment, fail)
    assert environment.calls == ["setup", "cleanup"]

    with pytest.raises(WorkerFailure, match="not served: failed"):
        episode(FakeEnvironment(), Policy(ended("a"), stop=StopReason.FAILED))

    async def cancel() -> None:
        async def hang(context: tuple[int, ...], turn: int, keep_cache: bool) -> Segment:
            await asyncio.sleep(3600)
            raise AssertionError

        running = asyncio.create_task(
            run_episode(
                environment,
                DriftingTokenizer(),
                hang,
                EnvironmentSettings(),
                EXAMPLE,
                0,
                0,
                max_new_tokens=1,
                max_context_tokens=99,
            )
        )
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    asyncio.run(cancel())
    assert environment.calls == ["setup", "cleanup"] * 2


def test_who_is_cancelled_while_he_waits_for_a_tool_leaves_no_call_behind() -> None:
    """A call that was made and never awaited is an error here."""
    environment = FakeEnvironment()
    settings = EnvironmentSettings(delay=DelaySettings(kind="fixed", mean_s=3600.0))

    async def cancel() -> None:
        running = asyncio.create_task(
            run_episode(
                environment,
                DriftingTokenizer(),
                Policy(ended("a")),
                settings,
                EXAMPLE,
                0,
                0,
                max_new_tokens=1,
                max_context_tokens=99,
            )
        )
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(cancel())
    gc.collect()
    assert environment.calls == ["setup", "cleanup"]


def test_waits_are_reported_with_the_delay() -> None:
    waits: list[tuple[float, float]] = []
    settings = EnvironmentSettings(delay=DelaySettings(kind="fixed", mean_s=0.05))
    episode(
        FakeEnvironment(), Policy(ended("a"), ended("b")), settings, on_wait=lambda start_s, end_s: waits.append((start_s, end_s))
    )
    assert len(waits) == 4
    assert sum(end_s - start_s for start_s, end_s in waits) > 0.09, "two turns with a delay each"


def test_delays_are_repeatable_and_have_the_right_mean() -> None:
    settings = DelaySettings(kind="long_tailed", mean_s=2.0, sigma=0.5)
    draws = [delay_s(settings, 0, f"e{number}", 0, 0) for number in range(4000)]
    assert draws == [delay_s(settings, 0, f"e{number}", 0, 0) for number in range(4000)]
    assert abs(sum(draws) / len(draws) - 2.0) < 0.1
    assert max(draws) > 5
    assert len({delay_s(settings, seed, "e", sample, turn) for seed in (0, 1) for sample in (0, 1) for turn in (0, 1)}) == 8
    assert delay_s(DelaySettings(), 0, "e", 0, 0) == 0.0
    assert delay_s(DelaySettings(kind="fixed", mean_s=1.5), 0, "e", 0, 0) == 1.5


def test_demonstrations_are_the_tokens_that_rollout_would_have_made() -> None:
    tokenizer, environment = DriftingTokenizer(), FakeEnvironment()
    segments = asyncio.run(render_demonstration(environment, tokenizer, EXAMPLE, POLICY))
    rolled_out = episode(FakeEnvironment(), Policy(ended("first"), ended("second")))
    assert [segment.tokens for segment in segments] == [segment.tokens for segment in rolled_out.segments]
    assert [segment.is_sampled for segment in segments] == [False, True, False, True]
    assert environment.calls == ["setup", "turn", "cleanup"]
    with pytest.raises(ConfigError, match="warm_start"):
        asyncio.run(render_demonstration(environment, tokenizer, Example("e", EXAMPLE.messages), POLICY))


def in_pool(settings_by_task: dict[str, Any], answer: Callable[[Example], list[str]], **options: Any) -> dict[str, Trajectory]:
    async def run() -> dict[str, Trajectory]:
        pool = await EnvironmentPool.start(settings_by_task, 1)
        try:
            return {task: await play(pool, task) for task in settings_by_task}
        finally:
            await pool.close()

    async def play(pool: EnvironmentPool, task: str) -> Trajectory:
        environment = pool.environment(task)
        example = await environment.example(0, "train")
        policy = Policy(*(ended(text) for text in answer(example)))
        limits = {"max_new_tokens": 50, "max_context_tokens": 2000, **options}
        return await run_episode(environment, DriftingTokenizer(), policy, environment.settings, example, 0, 0, **limits)

    return asyncio.run(run())


def test_equal_example_ids_of_two_environments_stay_apart() -> None:
    settings = {"add": CalculatorSettings(), "multiply": CalculatorSettings(operations=("*",), seed=1)}
    trajectories = in_pool(settings, lambda example: list(example.demonstration))
    assert len({trajectory.example_id for trajectory in trajectories.values()}) == 1
    assert len({(trajectory.environment, trajectory.example_id) for trajectory in trajectories.values()}) == 2
    assert [trajectory.reward for trajectory in trajectories.values()] == [1.0, 1.0]
    assert trajectories["add"].segments[0] != trajectories["multiply"].segments[0]


def test_a_hung_verifier_never_becomes_a_reward() -> None:
    settings = FunctionSettings(function=f"{SCORERS}:score", examples=f"{SCORERS}:examples", score_timeout_s=0.2)
    reported: list[StageFailure] = []
    with pytest.raises(StageFailure) as caught:
        in_pool({"task": settings}, lambda example: ["hang"], on_failure=reported.append)
    assert (caught.value.kind, caught.value.stage) == ("timeout", "score")
    assert len(reported) == 2
