"""Loads that the real SDK puts on the server."""

import time
from collections.abc import Sequence
from typing import Any

RESULT_S = 600.0


def sample_at_once(url: str, key: str, base_model: str, prompts: Sequence[Sequence[int]], max_tokens: int) -> dict[str, Any]:
    """One sample of each prompt, all of them asked for before the first is awaited."""
    import tinker

    service = tinker.ServiceClient(base_url=url, api_key=key)
    sampler = service.create_sampling_client(base_model=base_model).result()
    params = tinker.SamplingParams(max_tokens=max_tokens, temperature=1.0, stop=[])
    start_s = time.perf_counter()
    futures = [
        sampler.sample(tinker.ModelInput.from_ints(list(prompt)), num_samples=1, sampling_params=params) for prompt in prompts
    ]
    answers = [future.result(timeout=RESULT_S) for future in futures]
    wall_s = time.perf_counter() - start_s
    service.close("success").result(timeout=RESULT_S)
    whole = sum(len(answer.sequences[0].tokens) == max_tokens for answer in answers)
    return {"count": len(prompts), "whole": whole, "wall_s": wall_s, "num_tokens": whole * max_tokens}
