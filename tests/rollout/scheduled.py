"""Requests and engines for tests of schedulers."""

from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams


def request(
    request_id: str,
    group: str = "",
    tenant: str = "ada",
    queue: str = "sums",
    prompt_tokens: int = 1,
    max_new_tokens: int = 64,
    prompt: int = 1,
) -> GenerationRequest:
    """`prompt` tells prompts apart."""
    policy = PolicyVersion(tenant, queue, 0)
    return GenerationRequest(
        request_id, queue, policy, None, (prompt,) * prompt_tokens, SamplingParams(max_new_tokens), group=group
    )


def engine(name: str = "e0", cache_tokens: int = 1000, reserved: int = 0, max_rows: int = 64, num_rows: int = 0) -> EngineState:
    return EngineState(name, cache_tokens, reserved, max_rows, num_rows)
