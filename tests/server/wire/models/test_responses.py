"""The SDK reads every JSON response of ours."""

import importlib
import inspect
import json
import pkgutil
from datetime import UTC, datetime
from typing import Any

import pydantic
import pytest
from tinker import types
from tinker.cli.auth_api import SelfApiKeyResponse
from tinker.lib.public_interfaces.rest_client import _SessionTraceExportPollResponse
from tinker.types import futures_retrieve_response, health_response, request_failed_response, telemetry_response, try_again_response
from tinker.types._pydantic_types import get_sampler_response
from tinker.types.shared.untyped_api_future import UntypedAPIFuture

from plait.server.wire.models import accounts, checkpoints, futures, runs, sampling, service, sessions, training, weights
from plait.server.wire.models.base import Cursor, Response

TIME_S = 1_790_000_000.0
TIME = datetime.fromtimestamp(TIME_S, UTC)
CHECKPOINT = checkpoints.Checkpoint(
    checkpoint_id="weights/n",
    checkpoint_type="training",
    time=TIME_S,
    tinker_path="tinker://s:train:0/weights/n",
    size_bytes=7,
    user_metadata={"step": 3},
    expires_at=TIME,
)
CURSOR = Cursor(offset=0, limit=20, total_count=1)
RUN = runs.TrainingRun(
    training_run_id="s:train:0", base_model="b", model_owner="o", last_request_time=TIME, last_checkpoint=CHECKPOINT, lora_rank=8
)
SUMMARY = sessions.SessionSummary(
    session_id="s",
    created_at=TIME,
    owner="o",
    project_id="p",
    status=sessions.SessionFinished(reason=sessions.FinishReason(type="errored"), detail="d"),
)
NEXT = sessions.SessionSearchCursor(last_created_at=TIME, last_session_id="s")


def usage(info: accounts.EventInfo) -> accounts.UsageEvent:
    return accounts.UsageEvent(bucket_start=TIME, bucket_end=TIME, base_model="b", event_info=info)


PAIRS: list[tuple[pydantic.BaseModel, Any]] = [
    (service.ClientConfigResponse(), types.ClientConfigResponse),
    (service.ClientDynamicConfigResponse(), types.ClientDynamicConfigResponse),
    (service.TelemetryResponse(), telemetry_response.TelemetryResponse),
    (service.HealthResponse(), health_response.HealthResponse),
    (
        service.ServerCapabilitiesResponse(supported_models=[service.SupportedModel(model_name="b", max_context_length=8)]),
        types.GetServerCapabilitiesResponse,
    ),
    (sessions.CreateSessionResponse(session_id="s", info_message="hello"), types.CreateSessionResponse),
    (sessions.SessionHeartbeatResponse(), types.SessionHeartbeatResponse),
    (sessions.SessionResponse(training_run_ids=["m"], sampler_ids=["x"], user_metadata={"a": "b"}), types.GetSessionResponse),
    (sessions.SessionsResponse(sessions=["s"]), types.ListSessionsResponse),
    (sessions.SessionSearchResponse(sessions=[SUMMARY], next_cursor=NEXT), types.SessionSearchResponse),
    (SUMMARY.model_copy(update={"status": sessions.SessionActive()}), types.SessionSummary),
    (SUMMARY.model_copy(update={"status": sessions.SessionCancelled(detail="heartbeats lost")}), types.SessionSummary),
    (sessions.TraceExportResponse(status="failed", error="not kept"), _SessionTraceExportPollResponse),
    (training.CreateModelResponse(model_id="m"), types.CreateModelResponse),
    (
        training.GetInfoResponse(model_id="m", model_data=training.ModelData(model_name="b", tokenizer_id="t"), lora_rank=8),
        types.GetInfoResponse,
    ),
    (training.OptimStepResponse(metrics={"grad_norm:mean": 1.0}), types.OptimStepResponse),
    (training.UnloadModelResponse(model_id="m"), types.UnloadModelResponse),
    (weights.SaveWeightsResponse(path="tinker://m/weights/n"), types.SaveWeightsResponse),
    (weights.SaveWeightsForSamplerResponse(path="tinker://m/sampler_weights/n"), types.SaveWeightsForSamplerResponse),
    (weights.SaveWeightsForSamplerResponse(sampling_session_id="x"), types.SaveWeightsForSamplerResponseInternal),
    (weights.SaveWeightsExternalResponse(path="tinker://m/external_weights/n"), types.SaveWeightsExternalResponse),
    (
        weights.SaveWeightsExternalResponse(path="tinker://m/external_weights/n", size_bytes=3),
        types.SaveWeightsExternalResponseInternal,
    ),
    (weights.LoadWeightsResponse(path="tinker://m/weights/n", model_id="m"), types.LoadWeightsResponse),
    (sampling.CreateSamplingSessionResponse(sampling_session_id="x"), types.CreateSamplingSessionResponse),
    (sampling.JoinSamplingSessionResponse(client_counter=1), types.JoinSamplingSessionResponse),
    (sampling.SamplerResponse(sampler_id="x", base_model="b"), get_sampler_response.GetSamplerResponse),
    (futures.FutureResponse(request_id="r", sample_sequence_ids=["a"]), UntypedAPIFuture),
    (futures.TryAgainResponse(request_id="r", queue_state="paused_capacity"), try_again_response.TryAgainResponse),
    (futures.RequestFailedResponse(error="e", category="user"), request_failed_response.RequestFailedResponse),
    (
        futures.RetrieveFuturesResponse(
            completions=[
                futures.FutureFinished(request_id="r", response_payload_uncompressed_size=5),
                futures.FutureFailed(request_id="q"),
            ],
            cursor=4,
        ),
        futures_retrieve_response.FuturesRetrieveResponse,
    ),
    (CHECKPOINT, types.Checkpoint),
    (checkpoints.CheckpointsResponse(checkpoints=[CHECKPOINT], cursor=CURSOR), types.CheckpointsListResponse),
    (checkpoints.ExternalWeightsUrlsResponse(urls={"a": "http://h/a"}, expires=TIME), types.ExternalWeightsUrlsResponse),
    (checkpoints.WeightsInfoResponse(base_model="b", lora_rank=8, train_mlp=True), types.WeightsInfoResponse),
    (checkpoints.CopyWeightsResponse(tinker_path="tinker://m/weights/n"), types.CopyWeightsResponse),
    (RUN, types.TrainingRun),
    (runs.TrainingRunsResponse(training_runs=[RUN], cursor=CURSOR), types.TrainingRunsResponse),
    (
        accounts.AuditResponse(entries=[accounts.AuditEntry(timestamp=TIME, event="key_created", event_details={"a": 1})]),
        types.AuditLogResponse,
    ),
    (
        accounts.UsageResponse(
            data=[
                usage(accounts.TrainingUsage(token_count=1)),
                usage(accounts.PrefillUsage(token_count=2, cached=True)),
                usage(accounts.SampledUsage(token_count=3)),
                usage(accounts.CheckpointUsage(count=4)),
                usage(accounts.StorageUsage(gigabyte_hours=5.0)),
            ],
            sessions={"s": accounts.UsageSession(user_metadata={"a": "b"})},
        ),
        types.BillingUsageResponse,
    ),
    (
        accounts.CheckpointStorageResponse(data=[accounts.StorageItem(checkpoint_count=1, size_bytes=2, size_gigabytes=2e-9)]),
        types.CurrentCheckpointStorageUsageResponse,
    ),
    (
        accounts.ApiKeyResponse(
            key_id=1,
            name="n",
            note="",
            details=accounts.ApiKeyDetails(org_details=accounts.ApiKeyOwner(name="t"), user_details=accounts.ApiKeyUser(email="")),
        ),
        SelfApiKeyResponse,
    ),
]
NOT_SENT = {"AuthTokenResponse", "WhoamiResponse", "CreateCustomLossResponse"}
"""Of credentials that are exchanged, and of losses that the server runs: neither is served."""

UNREAD = {"warning", "queue_state_reason", "size_bytes"}
"""For people, other clients, and calls that the SDK reads by hand."""


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda value: getattr(value, "__name__", type(value).__name__))
def test_the_sdk_reads_what_we_send(ours: pydantic.BaseModel, theirs: type[pydantic.BaseModel]) -> None:
    body = json.loads(ours.model_dump_json(exclude_none=True))
    read = theirs.model_validate(body).model_dump(mode="json")
    assert covers(read, body), f"{read} is not {body}"
    theirs.model_validate(json.loads(ours.model_dump_json()))


def covers(read: Any, sent: Any) -> bool:
    """`read` has all that was sent, but for what the SDK is known not to read."""
    if isinstance(sent, dict):
        return all(covers(read[key], value) for key, value in sent.items() if key in read or key not in UNREAD)
    if isinstance(sent, list):
        return len(read) == len(sent) and all(covers(one, other) for one, other in zip(read, sent, strict=True))
    return read == sent


def test_no_response_of_the_sdk_is_left_out() -> None:
    modules = [importlib.import_module(found.name) for found in pkgutil.iter_modules(types.__path__, types.__name__ + ".")]
    classes = {value for module in modules for value in vars(module).values() if inspect.isclass(value)}
    responses = {
        found.__name__ for found in classes if issubclass(found, pydantic.BaseModel) and found.__name__.endswith("Response")
    }
    assert responses - {theirs.__name__ for _, theirs in PAIRS} == NOT_SENT


def test_no_response_of_ours_is_left_out() -> None:
    found = {type(ours) for ours, _ in PAIRS}
    by_hand: set[type] = {futures.NotReadyResponse, futures.ResultSizeResponse}
    of_the_sdk = {model for model in Response.__subclasses__() if not model.__module__.endswith(".administration")}
    assert {model for model in of_the_sdk if model.__name__.endswith("Response")} == found.union(by_hand) - {
        checkpoints.Checkpoint,
        runs.TrainingRun,
        sessions.SessionSummary,
    }


def test_answers_of_a_future_that_the_sdk_reads_by_hand() -> None:
    """As `_classify` in tinker.lib.api_future_impl looks them up."""
    assert futures.NotReadyResponse(queue_state="active").model_dump() == {"queue_state": "active", "queue_state_reason": None}
    assert futures.ResultSizeResponse(response_payload_size=9).model_dump() == {
        "status": "complete_metadata",
        "response_payload_size": 9,
    }


def test_the_clients_defaults_are_ours() -> None:
    for ours, theirs in ((service.ClientConfigResponse(), types.ClientConfigResponse), PAIRS[1]):
        assert ours.model_dump() == theirs().model_dump()


def test_metadata_become_texts_and_seconds_become_times() -> None:
    body = json.loads(CHECKPOINT.model_dump_json())
    assert body["user_metadata"] == {"step": "3"}
    assert types.Checkpoint.model_validate(body).time == TIME
