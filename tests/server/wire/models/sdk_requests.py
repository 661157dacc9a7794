"""Every JSON request of the SDK, with and without what is optional, and our model of it."""

from datetime import UTC, datetime
from typing import Any

import pydantic
from tinker import types
from tinker._models import StrictBase
from tinker.types import search_owner, session_search_cursor
from tinker.types._pydantic_types.tensor_data import TensorData
from tinker.types.create_custom_loss_request import CreateCustomLossRequest
from tinker.types.custom_loss_graph import CustomLossGraph
from tinker.types.custom_loss_input import CustomLossInput
from tinker.types.futures_retrieve_request import FuturesRetrieveRequest, SamplingSessionFuturesTarget
from tinker.types.session_status_query import ActiveSessionStatusQuery, ClientFinishedSessionStatusQuery

from plait.server.wire.models import accounts, checkpoints, futures, sampling, service, sessions, training, weights
from plait.server.wire.models.base import PageQuery, Request

PROMPT = types.ModelInput(chunks=[types.EncodedTextChunk(tokens=[1, 2]), types.EncodedTextChunk(tokens=[3])])
TARGETS = TensorData(data=[5, -1], dtype="int64", shape=[2, 2], sparse_crow_indices=[0, 1, 2], sparse_col_indices=[1, 0])
MODEL: dict[str, Any] = {"model_id": "s:train:0", "seq_id": 3}
NAMED: dict[str, Any] = {**MODEL, "path": "step-0001", "ttl_seconds": 3600}
DAY = datetime(2026, 11, 29, tzinfo=UTC)

PAIRS: list[tuple[StrictBase, type[Request]]] = [
    (types.ClientConfigRequest(sdk_version="0.38.0"), service.ClientConfigRequest),
    (types.CreateSessionRequest(tags=["a"], user_metadata={"n": 1}, sdk_version="0.38.0"), sessions.CreateSessionRequest),
    (
        types.CreateSessionRequest(tags=[], user_metadata=None, sdk_version="0.38.0", project_id="p", display_name="d"),
        sessions.CreateSessionRequest,
    ),
    (types.SessionHeartbeatRequest(session_id="s"), sessions.SessionHeartbeatRequest),
    (types.SessionSearchRequest(), sessions.SessionSearchRequest),
    (
        types.SessionSearchRequest(
            session_id="s",
            project_ids=["p"],
            user_metadata={"k": "v"},
            display_name="d",
            limit=7,
            owner=search_owner.UserSearchOwner(owner_urns=["u"]),
            statuses=[ActiveSessionStatusQuery(), ClientFinishedSessionStatusQuery(reasons=["errored"])],
            cursor=session_search_cursor.SessionSearchCursor(last_created_at=DAY, last_session_id="s"),
        ),
        sessions.SessionSearchRequest,
    ),
    (types.CreateModelRequest(session_id="s", model_seq_id=0, base_model="b"), training.CreateModelRequest),
    (
        types.CreateModelRequest(
            session_id="s",
            model_seq_id=1,
            base_model="b",
            user_metadata={"k": [1]},
            lora_config=types.LoraConfig(rank=8, seed=3, train_unembed=False, train_mlp=False, train_attn=True),
        ),
        training.CreateModelRequest,
    ),
    (types.GetInfoRequest(model_id="m"), training.GetInfoRequest),
    (types.OptimStepRequest(optim_params=types.AdamParams(), **MODEL), training.OptimStepRequest),
    (
        types.OptimStepRequest(
            optim_params=types.AdamParams(learning_rate=0, beta1=0, beta2=0.99, eps=0, weight_decay=0.1, grad_clip_norm=-1), **MODEL
        ),
        training.OptimStepRequest,
    ),
    (
        CreateCustomLossRequest(
            session_id="s",
            custom_loss_seq_id=0,
            name="l",
            inputs=[CustomLossInput(name="logprobs", rank=1)],
            graph=CustomLossGraph(nodes=[]),
        ),
        training.CreateCustomLossRequest,
    ),
    (types.UnloadModelRequest(model_id="m"), training.UnloadModelRequest),
    (types.SaveWeightsRequest(**MODEL), weights.SaveWeightsRequest),
    (types.SaveWeightsRequest(**NAMED, overwrite=True, user_metadata={"k": "v"}), weights.SaveWeightsRequest),
    (types.SaveWeightsForSamplerRequest(**NAMED), weights.SaveWeightsForSamplerRequest),
    (
        types.SaveWeightsForSamplerRequest(**MODEL, sampling_session_seq_id=0, kind="inflight", user_metadata={"k": "v"}),
        weights.SaveWeightsForSamplerRequest,
    ),
    (types.SaveWeightsExternalRequest(**NAMED, age_encryption_recipients=["age1x"]), weights.SaveWeightsExternalRequest),
    (types.LoadWeightsRequest(**MODEL, path="tinker://m/weights/n", optimizer=False), weights.LoadWeightsRequest),
    (
        types.LoadWeightsRequest(
            session_id="s",
            model_seq_id=2,
            path="tinker://m/weights/n",
            optimizer=True,
            base_model="b",
            user_metadata={"k": 1},
            optimizer_config=types.AdamOptimizerConfig(),
            weights_access_token="t",
        ),
        weights.LoadWeightsRequest,
    ),
    (
        types.CreateSamplingSessionRequest(session_id="s", sampling_session_seq_id=0, base_model="b"),
        sampling.CreateSamplingSessionRequest,
    ),
    (
        types.CreateSamplingSessionRequest(session_id="s", sampling_session_seq_id=0, model_path="tinker://m/weights/n"),
        sampling.CreateSamplingSessionRequest,
    ),
    (types.JoinSamplingSessionRequest(sampling_session_id="s"), sampling.JoinSamplingSessionRequest),
    (
        types.SampleRequest(sampling_session_id="x", seq_id=0, prompt=PROMPT, sampling_params=types.SamplingParams()),
        sampling.SampleRequest,
    ),
    (
        types.SampleRequest(
            sampling_session_id="x",
            seq_id=10**9,
            prompt=PROMPT,
            num_samples=4,
            prompt_logprobs=True,
            prompt_logprobs_last_n=2,
            topk_prompt_logprobs=5,
            topk_sample_logprobs=5,
            target_prompt_logprobs=TARGETS,
            prompt_alt_tokens_k=2,
            record_stability_info=True,
            sampling_params=types.SamplingParams(max_tokens=3, seed=2**63, stop=["a", "b"], temperature=0, top_k=4, top_p=0.5),
        ),
        sampling.SampleRequest,
    ),
    (types.FutureRetrieveRequest(request_id="r", allow_metadata_only=True), futures.RetrieveFutureRequest),
    (
        FuturesRetrieveRequest(
            target=SamplingSessionFuturesTarget(sampling_session_id="x", cloned_sampler_id=2),
            prev_cursor=4,
            timeout=0.0,
            retrieved_request_ids=["r"],
        ),
        futures.RetrieveFuturesRequest,
    ),
    (types.CopyWeightsRequest(source_path="tinker://m/weights/n", destination_project_id="p"), checkpoints.CopyWeightsRequest),
    (
        types.CopyWeightsRequest(source_path="tinker://m/weights/n", session_id="s", model_seq_id=0, ttl_seconds=7200),
        checkpoints.CopyWeightsRequest,
    ),
    (types.GetBillingUsageRequest(starting_on=DAY, ending_before=DAY.replace(hour=2)), accounts.UsageQuery),
    (types.GetCurrentCheckpointStorageUsageRequest(project_id="p"), PageQuery),
    (
        types.TelemetrySendRequest(events=[], platform="p", sdk_version="v", session_id="sessionless-1", process_uuid="u"),
        service.TelemetryRequest,
    ),
]


def sent(request: pydantic.BaseModel) -> dict[str, Any]:
    """The body as the SDK sends it."""
    return request.model_dump(mode="json", exclude_none=True)


def sample(**changes: Any) -> sampling.SampleRequest:
    body = {"sampling_session_id": "x", "seq_id": 0, "prompt": sent(PROMPT), "sampling_params": {}}
    return sampling.SampleRequest.model_validate(body | changes)
