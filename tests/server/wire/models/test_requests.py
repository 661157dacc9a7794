"""Every JSON request of the SDK is understood."""

import importlib
import inspect
import pkgutil
from datetime import UTC
from typing import Any

import numpy as np
import pytest
from tinker import types
from tinker._models import StrictBase

from plait.server.wire.models import accounts, checkpoints, futures, sampling, service, sessions
from plait.server.wire.models.base import PageQuery, Request
from tests.server.wire.models.sdk_requests import PAIRS, TARGETS, sample, sent


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda value: getattr(value, "__name__", type(value).__name__))
def test_a_request_of_the_sdk_is_read_whole(theirs: StrictBase, ours: type[Request]) -> None:
    body = sent(theirs)
    read = ours.model_validate(body | {"a_field_of_tomorrow": {}}).model_dump(mode="json")
    assert set(body) - set(read) <= {"type"}
    assert prune(read, body) == {key: value for key, value in body.items() if key in read}


def prune(value: Any, like: Any) -> Any:
    """`value` without the fields that `like` does not have: those are defaults, or were nulls. Times compare as times."""
    if isinstance(value, dict) and isinstance(like, dict):
        return {key: prune(value[key], part) for key, part in like.items() if key in value}
    if isinstance(value, list) and isinstance(like, list) and len(value) == len(like):
        return [prune(one, other) for one, other in zip(value, like, strict=True)]
    return value


def test_no_request_of_the_sdk_is_left_out() -> None:
    modules = [importlib.import_module(found.name) for found in pkgutil.iter_modules(types.__path__, types.__name__ + ".")]
    classes = {value for module in modules for value in vars(module).values() if inspect.isclass(value)}
    requests = {found.__name__ for found in classes if issubclass(found, StrictBase) and found.__name__.endswith("Request")}
    assert requests == {type(theirs).__name__ for theirs, _ in PAIRS}


def test_what_is_sent_without_a_class_is_read() -> None:
    assert sessions.FinishSessionRequest.model_validate({"reason": {"type": "interrupted"}, "detail": None}).detail is None
    assert futures.CancelFutureRequest.model_validate({"request_id": "r"}).request_id == "r"
    assert sessions.SessionProjectRequest.model_validate({"project_id": "p"}).project_id == "p"
    assert checkpoints.CheckpointTtlRequest.model_validate({"ttl_seconds": None}).ttl_seconds is None
    assert checkpoints.WeightsInfoRequest.model_validate({"tinker_path": "tinker://m/weights/n"}).tinker_path
    page = PageQuery.model_validate({"limit": "5", "offset": "10", "access_scope": "accessible"})
    assert (page.limit, page.offset) == (5, 10)
    window = accounts.UsageQuery.model_validate({"starting_on": "2026-11-01T00:00:00", "ending_before": "2026-11-02T00:00:00Z"})
    assert window.starting_on.tzinfo is UTC
    assert accounts.AuditQuery.model_validate({"event_type": "e", "day": "2026-11-01"}).day is not None


def test_telemetry_of_any_kind_is_taken() -> None:
    body = {"events": [{"event": "SESSION_START", "new": 1}], "session_id": "s", "platform": "linux"}
    assert service.TelemetryRequest.model_validate(body).events == body["events"]


@pytest.mark.parametrize(
    ("stop", "stops_at_end", "strings", "token_ids"),
    [
        (None, True, (), ()),
        ([], False, (), ()),
        ("x", False, ("x",), ()),
        (["x", "y"], False, ("x", "y"), ()),
        ([4, 0], False, (), (4, 0)),
    ],
)
def test_stops_are_told_apart(stop: Any, stops_at_end: bool, strings: tuple, token_ids: tuple) -> None:
    params = sampling.SamplingParamsRequest.model_validate(sent(types.SamplingParams(stop=stop)))
    assert (params.stops_at_end, params.stop_strings, params.stop_token_ids) == (stops_at_end, strings, token_ids)


def test_a_sample_request_says_what_to_score() -> None:
    plain = sample()
    assert plain.prompt.tokens == (1, 2, 3)
    assert not plain.scores_prompt
    scored = sample(prompt_logprobs=True, prompt_logprobs_last_n=1)
    assert scored.scores_prompt
    assert (plain.first_scored, scored.first_scored, sample(prompt_logprobs=True).first_scored) == (1, 2, 1)
    targets = sample(target_prompt_logprobs=sent(TARGETS)).target_prompt_logprobs
    assert targets is not None
    assert targets.ids.dtype == np.int32
    assert targets.ids.tolist() == [[-1, 5], [-1, -1]]
