"""What requests may not say, and the words that tell."""

import pydantic
import pytest
from tinker import types

from plait.server.wire.models import accounts, checkpoints, sampling, sessions, training, weights
from plait.server.wire.models.base import PageQuery, Request
from tests.server.wire.models.sdk_requests import DAY, MODEL, sample, sent

DENSE = {"data": [1, 2], "dtype": "int64", "shape": [2, 1]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_samples": 0}, "greater than or equal to 1"),
        ({"num_samples": 10**6}, "less than or equal to"),
        ({"sampling_params": {"max_tokens": 0}}, "greater than or equal to 1"),
        ({"sampling_params": {"temperature": -1}}, "greater than or equal to 0"),
        ({"sampling_params": {"top_p": 0}}, "greater than 0"),
        ({"sampling_params": {"top_k": -2}}, "greater than or equal to -1"),
        ({"sampling_params": {"stop": ["a", ""]}}, "empty string"),
        ({"seq_id": None}, "valid integer"),
        ({"sampling_session_id": ""}, "at least 1 character"),
        ({"prompt": {"chunks": []}}, "prompt holds no tokens"),
        ({"prompt": {"chunks": [{"type": "image", "data": "", "format": "png"}]}}, "'image' are not served"),
        ({"prompt": {"chunks": [{"type": "encoded_text", "tokens": [-1]}]}}, "greater than or equal to 0"),
        ({"prompt": {"chunks": [{"type": "encoded_text"}]}}, "Field required"),
        ({"prompt_logprobs_last_n": 1}, "needs prompt_logprobs"),
        ({"prompt_logprobs": True, "prompt_logprobs_last_n": 3}, "must be 1 to 2, not 3"),
        ({"topk_prompt_logprobs": 1000}, "less than or equal to 128"),
        ({"target_prompt_logprobs": DENSE | {"shape": [1, 2]}}, "must have 2 rows (L - 1), not 1"),
        ({"target_prompt_logprobs": DENSE | {"shape": [2]}}, "at least 2 items"),
        ({"target_prompt_logprobs": DENSE | {"shape": [2, 2]}}, "needs 4 ids, not 2"),
        ({"target_prompt_logprobs": DENSE | {"shape": [2, 10**6]}}, "at most 128"),
        ({"target_prompt_logprobs": DENSE | {"dtype": "float32"}}, "'int64'"),
        ({"target_prompt_logprobs": DENSE | {"data": [1, -2]}}, "greater than or equal to -1"),
        ({"target_prompt_logprobs": DENSE | {"sparse_crow_indices": [0, 1, 2]}}, "or neither"),
        (
            {"target_prompt_logprobs": DENSE | {"sparse_crow_indices": [0, 1, 2], "sparse_col_indices": [0, 1]}},
            "outside of the 1 columns",
        ),
    ],
)
def test_a_wrong_sample_request_is_refused(changes: dict, words: str) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        sample(**changes)
    assert words in str(caught.value)


SAVE = {"model_id": "m", "seq_id": 1}
LOAD = {"path": "tinker://m/weights/n", "optimizer": True}
CREATE = {"session_id": "s", "model_seq_id": 0, "base_model": "b"}


@pytest.mark.parametrize(
    ("model", "body", "words"),
    [
        (training.CreateModelRequest, CREATE | {"lora_config": {"rank": 0}}, "greater than or equal to 1"),
        (
            training.CreateModelRequest,
            CREATE | {"lora_config": {"rank": 1, "train_unembed": False, "train_mlp": False, "train_attn": False}},
            "nothing would be trained",
        ),
        (
            training.CreateModelRequest,
            CREATE | {"optimizer_config": {"type": "dimuon", "version": 1}},
            "optimizer 'dimuon' is not served",
        ),
        (training.OptimStepRequest, SAVE, "adam_params"),
        (training.OptimStepRequest, SAVE | {"adam_params": {"learning_rate": -1}}, "greater than or equal to 0"),
        (training.OptimStepRequest, SAVE | {"adam_params": {"beta2": 1}}, "less than 1"),
        (weights.SaveWeightsRequest, SAVE | {"path": "a/b"}, "match pattern"),
        (weights.SaveWeightsRequest, SAVE | {"path": ".."}, "match pattern"),
        (weights.SaveWeightsRequest, SAVE | {"ttl_seconds": 60}, "greater than or equal to 3600"),
        (weights.SaveWeightsForSamplerRequest, SAVE, "either path or sampling_session_seq_id"),
        (weights.SaveWeightsForSamplerRequest, SAVE | {"path": "n", "sampling_session_seq_id": 0}, "either path or"),
        (weights.LoadWeightsRequest, LOAD, "either session_id and model_seq_id"),
        (weights.LoadWeightsRequest, LOAD | {"session_id": "s"}, "either session_id and model_seq_id"),
        (weights.LoadWeightsRequest, LOAD | SAVE | {"session_id": "s", "model_seq_id": 0}, "either session_id"),
        (sampling.CreateSamplingSessionRequest, {"session_id": "s", "sampling_session_seq_id": 0}, "base_model or model_path"),
        (checkpoints.CopyWeightsRequest, {"source_path": "p"}, "either session_id and model_seq_id, or"),
        (checkpoints.CopyWeightsRequest, {"source_path": "p", "session_id": "s"}, "either session_id and model_seq_id, or"),
        (checkpoints.CheckpointTtlRequest, {}, "Field required"),
        (sessions.FinishSessionRequest, {"reason": {"type": "bored"}}, "'success', 'errored' or 'interrupted'"),
        (PageQuery, {"limit": 0}, "greater than or equal to 1"),
        (accounts.UsageQuery, {"starting_on": DAY, "ending_before": DAY}, "must be before"),
    ],
)
def test_a_wrong_request_is_refused(model: type[Request], body: dict, words: str) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        model.model_validate(body)
    assert words in str(caught.value)


def test_other_optimizers_are_refused_by_name() -> None:
    params = types.DimuonParams(learning_rate=0.1)
    with pytest.raises(pydantic.ValidationError, match="optimizer 'dimuon' is not served"):
        training.OptimStepRequest.model_validate(sent(types.OptimStepRequest(optim_params=params, **MODEL)))
