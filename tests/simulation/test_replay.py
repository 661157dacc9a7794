"""Replays of recorded runs: the recorded lengths are drawn again, on other hardware and with more tasks."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.simulation.recorded_lengths import correlation, recorded_lengths, with_turns
from plait.simulation.replay import Changes, nearest_model, replay
from plait.simulation.run_trace import RunTrace, TaskTrace, read_trace
from plait.simulation.simulate import simulate
from plait.state.rundir import RunDirectory
from plait.types.errors import ConfigError, StateError
from tests.observe.sample_run import write_sample_run

TASK = TaskTrace("a", 2, 2, 10, 0, 1, 0.5, 0, ((((5,), (7,)), ((50,), (60,))), (((8,), (9,)), ((30,), (20,)))))
TRACE = RunTrace("run", "smollm2-135m-instruct", 100.0, 2, (TASK,))


def test_recorded_lengths_are_drawn_at_their_places() -> None:
    lengths = recorded_lengths(TASK)
    assert [lengths.draw("0", "a/1/0", 0), lengths.draw("0", "a/1/1", 1), lengths.draw("1", "a/2/1", 0)] == [5, 60, 30]
    assert recorded_lengths(TASK, offset=1).draw("0", "a-2/1/0", 0) == 8
    assert lengths.max_tokens == 60
    assert lengths.correlation > 0.8


@given(st.lists(st.integers(1, 100), min_size=1, max_size=6), st.integers(1, 6))
def test_turns_keep_the_tokens(drawn: list[int], turns: int) -> None:
    found = with_turns(tuple(drawn), turns)
    assert len(found) == turns
    assert sum(found) == max(sum(drawn), turns if len(drawn) < turns else 0)
    assert all(length >= 1 for length in found)


def test_correlation_of_groups_that_are_alike_is_one_and_of_equal_means_none() -> None:
    assert correlation([[1.0, 1.0], [2.0, 2.0], [5.0, 5.0]]) == 1.0
    assert correlation([[1.0, 3.0], [3.0, 1.0]]) == 0.0
    assert correlation([[1.0]]) == 0.0


def test_all_recorded_tokens_are_drawn_again() -> None:
    found = replay(TRACE, Changes(accelerator="A100", devices=2, copies=3))
    assert found.scenario.cluster.accelerator == "A100"
    assert found.scenario.model.name == "SmolLM2-135M"
    result = simulate(found.scenario, "run", kinds=found.kinds)
    for system in result.systems:
        assert [work.name for work in system.works] == ["a-1", "a-2", "a-3"]
        makespan_s, rate = system.figures["makespan_s"], system.figures["tokens_per_s"]
        assert makespan_s is not None
        assert rate is not None
        assert rate * makespan_s == pytest.approx(3 * (5 + 7 + 50 + 60 + 8 + 9 + 30 + 20))


def test_engines_are_as_large_as_the_model_needs() -> None:
    scenario = replay(TRACE, Changes(model="Kimi-K2", devices=100)).scenario
    assert (scenario.rollout.devices_per_engine, scenario.training.devices) == (32, 36)
    assert replay(TRACE, Changes(devices=8)).scenario.rollout.devices_per_engine == 1


def test_what_is_not_known_is_told() -> None:
    assert nearest_model("/models/qwen3_0.6b") == "Qwen3-0.6B"
    with pytest.raises(ConfigError, match="--model"):
        nearest_model("somebody/llama-9b")
    with pytest.raises(ConfigError, match='--accelerator = "H9" is not known'):
        replay(TRACE, Changes(accelerator="H9"))
    with pytest.raises(ConfigError, match="cannot be replayed so"):
        replay(TRACE, Changes(model="Kimi-K2"))


def test_a_run_directory_is_read(tmp_path: Path) -> None:
    directory = write_sample_run(tmp_path / "run", num_steps=3)
    trace = read_trace(directory)
    assert nearest_model(trace.model) == "SmolLM2-135M"
    assert trace.tasks
    assert all(task.prompt_tokens > 0 and task.steps for task in trace.tasks)
    assert trace.duration_s > 0


def test_a_run_without_steps_is_told(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "empty", "name = 'empty'\n")
    directory.events.touch()
    with pytest.raises(StateError, match="no committed step with samples"):
        read_trace(directory)
