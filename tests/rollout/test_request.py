from hypothesis import given
from hypothesis import strategies as st

from plait.rollout.request import GenerationRequest
from plait.types.chunks import ChunkResult
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams, StopReason

POLICY = PolicyVersion("local", "sums", 1)


@given(st.integers(1, 30), st.integers(1, 10), st.lists(st.integers(1, 5), max_size=8))
def test_the_chunks_of_a_request_share_its_limit(max_new_tokens: int, chunk_tokens: int, drawn: list[int]) -> None:
    ref = AdapterRef(POLICY, "folder", "digest")
    request = GenerationRequest("r", "sums", POLICY, ref, (1, 2), SamplingParams(max_new_tokens), keep_cache=True)
    for num_tokens in drawn:
        chunk = request.next_chunk(chunk_tokens)
        assert chunk.budget_tokens == min(chunk_tokens, max_new_tokens - len(request.tokens))
        assert chunk.context_tokens == (1, 2, *request.tokens)
        assert chunk.generated_tokens == len(request.tokens)
        assert (chunk.policy, chunk.adapter, chunk.keep_cache) == (POLICY, ref, True)
        tokens = tuple(range(min(num_tokens, chunk.budget_tokens)))
        if len(request.tokens) + len(tokens) >= max_new_tokens:
            break
        request.append(ChunkResult("r", POLICY, tokens, (-1.0,) * len(tokens), StopReason.BUDGET))


def test_a_segment_carries_the_policy_that_drew_it() -> None:
    request = GenerationRequest("r", "sums", POLICY, None, (1,), SamplingParams(4), tokens=[5, 6], logprobs=[-1.0, -2.0])
    segment = request.segment(StopReason.LENGTH)
    assert (segment.tokens, segment.logprobs, segment.policy, segment.stop) == ((5, 6), (-1.0, -2.0), POLICY, "length")
    assert segment.is_sampled
