"""The benchmark of one GRPO step: Plait's side of it on a tiny model, and how the figures are drawn up."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.marlaas_rewards import vowel_share
from benchmarks.train_step import headlines_of, take_turns
from benchmarks.train_step_systems import PlaitSteps, StepShape, StepTime
from plait.models.tiny import make_tiny_model


def test_a_step_of_plait_has_all_its_tokens_and_waits_to_be_asked_for(tmp_path: Path) -> None:
    shape = StepShape(str(make_tiny_model(tmp_path)), "bfloat16", num_prompts=2, group_size=4, new_tokens=6, rank=4)

    async def two_steps() -> list[StepTime]:
        async with PlaitSteps(shape, max_steps=5) as system:
            steps = [await system.step()]
            await asyncio.sleep(0.3)
            assert system.num_waiting_steps == 0
            return [*steps, await system.step()]

    steps = asyncio.run(two_steps())
    assert all(step.wall_s > 0 for step in steps)
    assert sum(step.cpu_s for step in steps) > 0
    assert steps[1].parts["rollout"] < steps[1].wall_s


class FakeSystem:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log, self.count = name, log, 0

    async def __aenter__(self) -> "FakeSystem":
        self.log.append(f"{self.name} up")
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.log.append(f"{self.name} down")

    async def step(self) -> StepTime:
        self.count += 1
        self.log.append(self.name)
        return StepTime(float(self.count), 1.0)


def test_systems_take_turns_and_the_first_step_does_not_count() -> None:
    log: list[str] = []
    systems = [FakeSystem("a", log), FakeSystem("b", log)]
    times = asyncio.run(take_turns(systems, 2, Console(quiet=True)))
    assert log == ["a up", "b up", "a", "b", "a", "b", "a", "b", "b down", "a down"]
    assert [step.wall_s for step in times["a"]] == [2.0, 3.0]


def row(dtype: str, system: str, steps_per_hour: float) -> dict[str, Any]:
    return {"dtype": dtype, "system": system, "steps_per_hour": steps_per_hour}


def test_the_claim_is_the_smallest_gain_over_the_fastest_peer() -> None:
    rows = [
        row("bfloat16", "plait", 400), row("bfloat16", "trl", 80), row("bfloat16", "trl_autocast", 100),
        row("float32", "plait", 320), row("float32", "trl", 100),
    ]  # fmt: skip
    found = headlines_of(rows)["steps_per_hour_vs_trl"]
    assert found["value"] == pytest.approx(3.2)
    assert found["met"]


def test_without_the_peer_nothing_is_claimed() -> None:
    found = headlines_of([row("bfloat16", "plait", 400)])["steps_per_hour_vs_trl"]
    assert not found["met"]


def test_the_reward_pays_for_vowels() -> None:
    assert vowel_share({}, "aeio") == 1
    assert vowel_share({}, "") == 0
