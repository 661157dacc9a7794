import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from plait.config.environments import CalculatorSettings, DatasetSettings, FunctionSettings, ReasoningGymSettings
from plait.environments import EnvironmentPool, PooledEnvironment, StageFailure
from plait.types.errors import ConfigError, EnvironmentFailure

SCORERS = str(Path(__file__).parent / "scorers.py")
HANGS_S = 60.0
"""Only what hangs takes so long."""
SETTINGS = FunctionSettings(function=f"{SCORERS}:score", examples=f"{SCORERS}:examples", score_timeout_s=HANGS_S)


@pytest.fixture(autouse=True)
def others() -> Iterator[None]:
    """Children of other tests, such as a server that the session shares, are not the pool's."""
    _others.update(_children())
    yield
    _others.clear()


_others: set[psutil.Process] = set()


def with_pool(scenario: Callable[[EnvironmentPool], Awaitable[None]], num_processes: int = 1, num_tasks: int = 1) -> None:
    async def run() -> None:
        pool = await EnvironmentPool.start({f"task{index}": SETTINGS for index in range(num_tasks)}, num_processes)
        try:
            await scenario(pool)
        finally:
            await pool.close()
        await until(lambda: not _environment_processes())

    asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(HANGS_S):
        while not condition():
            await asyncio.sleep(0.01)


async def score(environment: PooledEnvironment, answer: str) -> float:
    example = await environment.example(0, "train")
    return (await environment.score(example, {}, (answer,))).reward


async def failure_of(environment: PooledEnvironment, answer: str) -> StageFailure:
    with pytest.raises(StageFailure) as caught:
        await score(environment, answer)
    return caught.value


def _environment_processes() -> list[psutil.Process]:
    return [child for child in _children() if child not in _others and _is_alive(child)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def test_calls_come_back() -> None:
    async def scenario(pool: EnvironmentPool) -> None:
        environment = pool.environment("task0")
        example = await environment.example(3, "train")
        assert example.data["index"] >= 0
        assert (await environment.score(example, {}, (str(example.data["index"]),))).reward == 1.0
        assert (await environment.score(example, {}, ("metrics",))).metrics == {"style": 2.0}
        assert await environment.setup(example) == {}
        assert (await environment.turn(example, {"a": [1]}, ("x",))).state == {"a": [1]}
        await environment.cleanup(example, {})

    with_pool(scenario)


@pytest.mark.parametrize(
    ("answer", "kind", "cause"),
    [
        ("hang", "timeout", "0.5 s"),
        ("spin", "timeout", "0.5 s"),
        ("spawn", "timeout", "0.5 s"),
        ("die", "died", "exit code 5"),
        ("raise", "error", "the judge is ill"),
        ("exit", "error", "SystemExit"),
        ("nan", "error", "not a finite number"),
        ("text", "error", "not a number"),
        ("none", "error", "not a number"),
    ],
)
def test_a_failure_is_a_failure_and_the_pool_goes_on(answer: str, kind: str, cause: str) -> None:
    async def scenario(pool: EnvironmentPool) -> None:
        environment = pool.environment("task0")
        if kind == "timeout":
            environment.settings = SETTINGS.model_copy(update={"score_timeout_s": 0.5})
        failure = await failure_of(environment, answer)
        environment.settings = SETTINGS
        assert isinstance(failure, EnvironmentFailure)
        assert (failure.task, failure.stage, failure.kind) == ("task0", "score", kind)
        assert cause in failure.cause
        assert await score(environment, "wrong") == 0.0
        await until(lambda: len(_environment_processes()) == 1)

    with_pool(scenario)


def test_a_hundred_poison_samples_leak_nothing() -> None:
    """Each hangs with a process of its own; good samples in between are all scored."""

    async def scenario(pool: EnvironmentPool) -> None:
        environment = pool.environment("task0")
        example = await environment.example(0, "train")
        quick = environment.settings.model_copy(update={"score_timeout_s": 0.05})
        environment.settings = quick
        calls = [environment.score(example, {}, ("spawn" if index % 2 else "hang",)) for index in range(100)]
        failures = await asyncio.gather(*calls, return_exceptions=True)
        assert [failure.kind for failure in failures if isinstance(failure, StageFailure)] == ["timeout"] * 100
        environment.settings = SETTINGS
        async with asyncio.timeout(HANGS_S):
            assert await asyncio.gather(*(score(environment, "fine") for _ in range(20))) == [0.0] * 20
        await until(lambda: len(_environment_processes()) <= 2)

    with_pool(scenario, num_processes=2)


def test_slow_rewards_do_not_block_the_event_loop(tmp_path: Path) -> None:
    """Each process takes one, and waits for what this loop does then."""

    async def scenario(pool: EnvironmentPool) -> None:
        gate = tmp_path / "gate"
        scores = [asyncio.create_task(score(pool.environment("task0"), f"wait {gate}")) for _ in range(16)]
        await until(lambda: len(list(tmp_path.glob("gate.*"))) == 4)
        assert not any(each.done() for each in scores)
        gate.touch()
        assert await asyncio.gather(*scores) == [0.0] * 16

    with_pool(scenario, num_processes=4)


def test_waiting_in_the_queue_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits begin when a process takes a call."""
    begun: list[float | None] = []
    timeout = asyncio.timeout

    def told_timeout(delay_s: float | None) -> asyncio.Timeout:
        begun.append(delay_s)
        return timeout(delay_s)

    async def scenario(pool: EnvironmentPool) -> None:
        environment, gate = pool.environment("task0"), tmp_path / "gate"
        example = await environment.example(0, "train")
        first = asyncio.create_task(environment.score(example, {}, (f"wait {gate}",)))
        await until(lambda: list(tmp_path.glob("gate.*")))
        monkeypatch.setattr(asyncio, "timeout", told_timeout)
        environment.settings = SETTINGS.model_copy(update={"score_timeout_s": HANGS_S + 1})
        second = asyncio.create_task(environment.score(example, {}, ("x",)))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not begun
        gate.touch()
        assert [(await each).reward for each in (first, second)] == [0.0, 0.0]
        assert begun == [HANGS_S + 1]

    with_pool(scenario)


def test_tasks_take_turns() -> None:
    async def scenario(pool: EnvironmentPool) -> None:
        example = await pool.environment("task0").example(0, "train")
        order: list[str] = []

        async def timed(task: str) -> None:
            await pool.environment(task).score(example, {}, ("sleep 0.02",))
            order.append(task)

        await asyncio.gather(*(timed("task0") for _ in range(20)), timed("task1"))
        assert order.index("task1") <= 3

    with_pool(scenario, num_tasks=2)


def test_a_cancelled_caller_takes_its_call_along(tmp_path: Path) -> None:
    async def scenario(pool: EnvironmentPool) -> None:
        environment, gate = pool.environment("task0"), tmp_path / "gate"
        blocking = asyncio.create_task(score(environment, f"wait {gate}"))
        await until(lambda: list(tmp_path.glob("gate.*")))
        waiting = [asyncio.create_task(score(environment, "hang")) for _ in range(20)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        gate.touch()
        async with asyncio.timeout(HANGS_S / 2):
            assert await score(environment, "x") == 0.0
        assert await blocking == 0.0

    with_pool(scenario)


def test_a_process_killed_while_idle_costs_no_call() -> None:
    async def scenario(pool: EnvironmentPool) -> None:
        first = await score(pool.environment("task0"), "pid")
        child = pool._workers[0]._child
        psutil.Process(int(first)).kill()
        await until(lambda: child is not None and child.exit_code is not None)
        assert await score(pool.environment("task0"), "pid") not in (0.0, first)

    with_pool(scenario)


def test_output_of_user_code_stalls_nothing() -> None:
    async def scenario(pool: EnvironmentPool) -> None:
        assert [await score(pool.environment("task0"), "print") for _ in range(3)] == [0.0] * 3

    with_pool(scenario)


def test_a_call_that_cannot_be_sent_fails_alone() -> None:
    async def scenario(pool: EnvironmentPool) -> None:
        environment = pool.environment("task0")
        example = await environment.example(0, "train")
        for state in ({"big": 2**70}, {"odd": object()}):
            with pytest.raises((OverflowError, TypeError)):
                await environment.turn(example, state, ("x",))
        assert await score(environment, "x") == 0.0

    with_pool(scenario)


def test_close_ends_every_call() -> None:
    async def run() -> None:
        pool = await EnvironmentPool.start({"a": SETTINGS.model_copy(update={"score_timeout_s": 600.0})}, 1)
        example = await pool.environment("a").example(0, "train")
        calls = [asyncio.create_task(pool.environment("a").score(example, {}, ("hang",))) for _ in range(5)]
        await asyncio.sleep(0.1)
        await pool.close()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(outcome, StageFailure) and "closed" in outcome.cause for outcome in outcomes)
        with pytest.raises(StageFailure, match="closed"):
            await pool.environment("a").example(0, "train")
        await until(lambda: not _environment_processes())

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (FunctionSettings(function="no_such_module:score", examples="x:y"), "no_such_module"),
        (FunctionSettings(function=f"{SCORERS}:scrore", examples=f"{SCORERS}:examples"), "scrore"),
        (FunctionSettings(function="missing.py:score", examples=f"{SCORERS}:examples"), "missing.py"),
        (FunctionSettings(function=f"{SCORERS}:score"), "exactly one"),
        (DatasetSettings(path="missing.jsonl"), "missing.jsonl"),
        (ReasoningGymSettings(name="product"), "Did you mean 'products'"),
        (ReasoningGymSettings(name="products", options={"max_digit": 1}), "Did you mean 'max_digits'"),
        (ReasoningGymSettings(name="products", options={"max_digits": -1}), "max_digits"),
        (CalculatorSettings(min_value=3, max_value=2), "min_value 3"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(settings: FunctionSettings, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        asyncio.run(EnvironmentPool.start({"task": settings}, 1))


def test_a_task_that_cannot_be_built_harms_no_other() -> None:
    async def scenario(pool: EnvironmentPool) -> None:
        with pytest.raises(ConfigError):
            await pool.add_task("broken", DatasetSettings(path="missing.jsonl"))
        with pytest.raises(ConfigError, match="already"):
            await pool.add_task("task0", SETTINGS)
        environment = await pool.add_task("broken", CalculatorSettings())
        assert (await environment.example(0, "train")).example_id == "train-0"
        assert await score(pool.environment("task0"), "x") == 0.0

    with_pool(scenario, num_processes=2)
