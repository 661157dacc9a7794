"""Requests that are siblings are told from what they ask, for clients do not say so."""

from dataclasses import replace

from plait.server.sample_call import EngineLimits, SampleCall
from plait.server.samplers import SamplerInfo
from plait.server.wire.models.sampling import SampleRequest
from plait.types.policy import PolicyVersion

SAMPLER = SamplerInfo("s:sample:0", "ana", "s", "base", PolicyVersion("ana", "s:train:0", 3))


def group_of(seq_id: int, tokens: list[int], sampler: SamplerInfo = SAMPLER, max_tokens: int = 4) -> set[str]:
    request = SampleRequest.model_validate({
        "sampling_session_id": sampler.sampler_id, "seq_id": seq_id, "num_samples": 2, "prompt": {"chunks": [{"tokens": tokens}]},
        "sampling_params": {"max_tokens": max_tokens, "stop": []},
    })  # fmt: skip
    return {generation.group for generation in SampleCall.check(request, sampler, EngineLimits(300, 100, ())).generations()}


def test_equal_prompts_under_one_version_are_one_group_however_they_come() -> None:
    """Through another request, another sampler of the same version, with another limit."""
    (group,) = group_of(0, [5, 6, 7])
    assert group_of(1, [5, 6, 7]) == {group}
    assert group_of(2, [5, 6, 7], max_tokens=9) == {group}
    assert group_of(0, [5, 6, 7], replace(SAMPLER, sampler_id="s:sample:1")) == {group}


def test_another_prompt_version_model_or_tenant_is_another_group() -> None:
    policies = [PolicyVersion("ana", "s:train:0", 4), PolicyVersion("ana", "s:train:1", 3), PolicyVersion("bob", "s:train:0", 3)]
    groups = [group_of(0, [5, 6, 7]), group_of(0, [5, 6]), group_of(0, [5, 6, 8])]
    groups += [group_of(0, [5, 6, 7], replace(SAMPLER, policy=policy, tenant_id=policy.tenant)) for policy in policies]
    assert len(set.union(*groups)) == len(groups) == 6
