"""Simulated rollouts: all work is done once, and what comes out can be checked by hand."""

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.rollout.context_scheduler import ContextScheduler
from plait.rollout.request import GenerationRequest
from plait.simulation.light_request import light_request
from plait.simulation.rollout import SimulatedRollout
from plait.types.policy import PolicyVersion


class StepCosts:
    """A step takes a second and a hundredth for each row; a prompt a tenth for each token."""

    def prefill_s(self, num_tokens: int) -> float:
        return 0.1 * num_tokens

    def decode_step_s(self, num_rows: int, context_tokens: int) -> float:
        return 1 + 0.01 * num_rows if num_rows else 0.0

    def verify_step_s(self, num_rows: int, context_tokens: int, tokens_per_row: float) -> float:
        return self.decode_step_s(num_rows, context_tokens)

    def train_s(self, num_tokens: int) -> float:
        return 0.0

    def optimizer_s(self) -> float:
        return 0.0

    def publish_s(self) -> float:
        return 0.0

    def load_s(self, num_bytes: float, tier: str) -> float:
        return 0.0

    def offload_s(self, num_bytes: float, tier: str) -> float:
        return 0.0

    pads_contexts = False

    def resume_s(self, num_tokens: int) -> float:
        return 0.0

    def fetch_s(self, num_tokens: int) -> float:
        return 0.0


def request(number: int, group: str = "") -> GenerationRequest:
    policy = PolicyVersion("tenant", "task", 0)
    return light_request(f"r{number}", "task", policy, 2, 1000, group)


def run(
    lengths: list[int], num_engines: int = 1, cache_tokens: int = 10_000, chunk_tokens: int = 10
) -> dict[str, tuple[float, int]]:
    """Request -> (end, tokens)."""
    env = simpy.Environment()
    engines = {f"e{i}": StepCosts() for i in range(num_engines)}
    rollout = SimulatedRollout(env, ContextScheduler(), engines, cache_tokens, 8, chunk_tokens)
    ended: dict[str, tuple[float, int]] = {}
    for number, length in enumerate(lengths):
        rollout.submit(request(number), length, lambda done: ended.update({done.request_id: (env.now, len(done.tokens))}))
    env.run()
    assert (rollout.scheduler.num_running, rollout.scheduler.num_waiting) == (0, 0)
    assert all(state.reserved_tokens == 0 for state in rollout.dispatcher.engines)
    return ended


def test_one_request_takes_its_prompt_and_its_steps() -> None:
    assert run([5])["r0"] == (pytest.approx(0.2 + 5 * 1.01), 5)


def test_two_requests_share_their_steps() -> None:
    ended = run([5, 8])
    assert ended["r0"] == (pytest.approx(0.4 + 5 * 1.02), 5)
    assert ended["r1"] == (pytest.approx(0.4 + 5 * 1.02 + 3 * 1.01), 8)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(1, 3), st.sampled_from([90, 200, 10_000]))
def test_every_request_draws_its_length_and_no_engine_makes_time(lengths: list[int], num_engines: int, cache_tokens: int) -> None:
    ended = run(lengths, num_engines, cache_tokens)
    assert {name: tokens for name, (_, tokens) in ended.items()} == {f"r{i}": length for i, length in enumerate(lengths)}
    longest_s = max(time_s for time_s, _ in ended.values())
    assert longest_s >= max(lengths) * 1.01
    assert longest_s >= sum(lengths) / (8 * num_engines) * 1.08
    assert longest_s <= sum(lengths) * 1.08 + 0.2 * len(lengths) + len(lengths)
