"""Long-tailed rollouts in simulation: context pays, in time and against an oracle that knows all lengths."""

import math
from random import Random

import pytest

from plait.rollout.context_scheduler import ContextScheduler, SchedulerLimits
from plait.rollout.length_estimates import LengthHistory, Siblings
from plait.rollout.request import GenerationRequest
from tests.rollout.scheduled import request
from tests.rollout.simulate import Cost, Simulated, SimulatedEngine, simulate

NUM_GROUPS, GROUP_SIZE, MAX_TOKENS, CHUNK_TOKENS = 120, 8, 3000, 128


class NoHistory(LengthHistory):
    def add(self, key: tuple[str, str, int], siblings: Siblings) -> None:
        """Forget it."""


def workload(seed: int) -> dict[str, int]:
    """Lengths by request_id `group/sample`: log-normal between groups and, less so, within."""
    random, lengths = Random(seed), {}
    for group in range(NUM_GROUPS):
        centre = random.gauss(math.log(220), 0.8)
        for sample in range(GROUP_SIZE):
            lengths[f"{group}/{sample}"] = max(1, min(MAX_TOKENS, int(math.exp(random.gauss(centre, 0.3)))))
    return lengths


def serve(lengths: dict[str, int], scheduler: ContextScheduler, each_alone: bool = False) -> Simulated:
    engines = [SimulatedEngine(f"e{n}", 4000, 64, Cost()) for n in range(4)]
    requests: list[GenerationRequest] = []
    for number, request_id in enumerate(lengths):
        group = int(request_id.split("/")[0])
        prompt = number if each_alone else group
        requests.append(request(request_id, "" if each_alone else str(group), "ada", "sums", 50, MAX_TOKENS, prompt))
    return simulate(scheduler, requests, lengths, engines)


def remembered(lengths: dict[str, int], prompts: list[tuple[int, ...]]) -> LengthHistory:
    history = LengthHistory()
    for prompt, num_tokens in zip(prompts, lengths.values(), strict=True):
        siblings = Siblings()
        siblings.add(num_tokens)
        history.add(("ada", "sums", hash(prompt)), siblings)
    return history


@pytest.fixture(scope="module")
def lengths() -> dict[str, int]:
    return workload(4)


@pytest.fixture(scope="module")
def oracle(lengths: dict[str, int]) -> Simulated:
    history = remembered(lengths, [(number,) * 50 for number in range(len(lengths))])
    return serve(lengths, ContextScheduler(CHUNK_TOKENS, history=history), each_alone=True)


def test_context_is_faster_than_first_come_first_served_and_near_the_oracle(lengths: dict[str, int], oracle: Simulated) -> None:
    plain = serve(lengths, ContextScheduler(CHUNK_TOKENS, SchedulerLimits(uses_context=False)))
    scheduler = ContextScheduler(CHUNK_TOKENS, history=NoHistory())
    context = serve(lengths, scheduler)
    for name, each in (("plain", plain), ("context", context), ("oracle", oracle)):
        print(f"{name}: {each.makespan_s:.1f} s, last tenth {each.last_tenth_s:.1f} s, reserved {each.reserved_share:.3f}")
    assert plain.num_tokens == context.num_tokens == oracle.num_tokens == sum(lengths.values())
    assert oracle.makespan_s < context.makespan_s < plain.makespan_s
    assert context.makespan_s <= 1.04 * oracle.makespan_s
    assert context.last_tenth_s <= 0.25 * plain.last_tenth_s
    assert min(each.reserved_share for each in (plain, context, oracle)) >= 0.85


def test_history_makes_estimates_better_and_the_next_step_faster(lengths: dict[str, int]) -> None:
    history = LengthHistory()
    without = ContextScheduler(CHUNK_TOKENS, history=history)
    first = serve(lengths, without)
    scheduler = ContextScheduler(CHUNK_TOKENS, history=history)
    random = Random(1)
    drifted = {name: max(1, min(MAX_TOKENS, int(n * random.uniform(0.8, 1.25)))) for name, n in lengths.items()}
    second = serve(drifted, scheduler)
    anew = serve(drifted, ContextScheduler(CHUNK_TOKENS, history=NoHistory()))
    errors = scheduler.errors
    print(f"first step {first.makespan_s:.1f} s, error {without.errors.mean_running_maximum:.2f} with siblings alone")
    print(f"second {second.makespan_s:.1f} s, error {errors.mean_estimate:.2f} with history; {anew.makespan_s:.1f} s without")
    assert second.makespan_s < anew.makespan_s
    assert errors.num == len(lengths)
    assert errors.mean_estimate < 0.5 * without.errors.mean_running_maximum
    assert errors.mean_estimate < 0.5 * errors.mean_running_maximum


def test_the_same_seed_gives_the_same_rollout(lengths: dict[str, int]) -> None:
    few = dict(list(lengths.items())[:80])
    first, second = (serve(few, ContextScheduler(CHUNK_TOKENS)) for _ in range(2))
    assert first.finish_s == second.finish_s
