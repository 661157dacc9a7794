"""Counters count what happens; labels stay few, whoever comes."""

import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from plait.cluster.messages import Busy
from plait.cluster.model_messages import CallDone
from plait.rollout.context_scheduler import ContextScheduler
from plait.rollout.engine_state import EngineState
from plait.rollout.holdings import Holdings
from plait.rollout.prefix_routing import PrefixRouter, prefix_router
from plait.rollout.request import GenerationRequest
from plait.server import metrics as metrics_module
from plait.server.call import Call, CallFailure, CallResult, Kind
from plait.server.metrics import MAX_MODELS, MAX_TENANTS, Metrics
from plait.server.observed import ObservedScheduler
from plait.types.chunks import ChunkResult
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams, StopReason

POLICY = PolicyVersion("acme", "base", 0)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def call(model_id: str = "m", kind: Kind = Kind.OPTIM_STEP) -> Call:
    return Call(model_id, 1, kind, b"")


def test_calls_are_counted_by_kind_and_outcome() -> None:
    metrics = Metrics()
    metrics.call_ended("acme", call(), CallResult(b"", "", version=3, num_trained_tokens=5))
    metrics.call_ended("acme", call(), CallFailure("", is_user_error=True))
    metrics.call_ended("acme", call(), CallFailure("", is_user_error=False))
    for outcome in ("done", "user_error", "server_error"):
        assert value(metrics, "plait_calls_total", kind="optim_step", outcome=outcome) == 1
    assert value(metrics, "plait_tokens_total", tenant="acme", type="trained") == 5
    assert value(metrics, "plait_model_version", model="m") == 3


def test_waiting_and_running_are_told_apart() -> None:
    metrics, accepted = Metrics(), call()
    metrics.call_ran(accepted, accepted.accepted_s + 2.0, accepted.accepted_s + 5.0)
    assert value(metrics, "plait_call_wait_seconds_sum", kind="optim_step") == pytest.approx(2.0)
    assert value(metrics, "plait_call_run_seconds_sum", kind="optim_step") == pytest.approx(3.0)


def test_tenants_and_models_do_not_grow_the_page_for_ever() -> None:
    metrics = Metrics()
    for number in range(MAX_TENANTS + 50):
        metrics.call_ended(f"tenant{number}", call(f"model{number}"), CallResult(b"", "", version=1, num_trained_tokens=1))
    families = {family.name: family for family in text_string_to_metric_families(metrics.page().decode())}
    assert len(families["plait_tokens"].samples) == MAX_TENANTS + 1
    assert value(metrics, "plait_tokens_total", tenant="(others)", type="trained") == 50
    assert len(families["plait_model_version"].samples) == MAX_MODELS
    assert value(metrics, "plait_model_version", model=f"model{MAX_TENANTS + 49}") == 1
    assert value(metrics, "plait_model_version", model="model0") is None


def test_utilisation_is_the_busy_share_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, now_s = Metrics(), time.time()
    metrics.on_busy("base", "train", Busy(now_s + 300, now_s + 315, 64))
    monkeypatch.setattr(metrics_module.time, "time", lambda: now_s + 330)
    assert value(metrics, "plait_worker_utilisation", base_model="base", worker="train") == pytest.approx(0.25, abs=0.01)
    assert value(metrics, "plait_worker_busy_seconds_total", base_model="base", worker="train") == pytest.approx(15.0)
    assert value(metrics, "plait_worker_tokens_total", base_model="base", worker="train") == 64


def test_the_gap_between_trainer_and_sampler_is_told_where_it_was_measured() -> None:
    metrics, ref = Metrics(), AdapterRef(POLICY, "folder", "digest")
    for measured in ({"logprob_gap_max": 1e-4}, {}):
        metrics.on_reply(CallDone("m", 1, ref, metrics=measured))
    assert value(metrics, "plait_logprob_gap_count") == 1
    metrics.on_trainer_lost((), 0)
    metrics.on_trainer_back()
    assert value(metrics, "plait_trainer_losses_total") == 1


def generation(name: str) -> GenerationRequest:
    return GenerationRequest(name, "base", POLICY, None, (1, 2), SamplingParams(max_new_tokens=8))


ENGINES = [EngineState("rollout", 1000, 0, 8, 0)]


def scheduler_of(metrics: Metrics) -> ObservedScheduler:
    return ObservedScheduler(metrics, ContextScheduler(chunk_tokens=4))


def test_a_sample_waits_until_its_first_tokens_and_takes_until_its_last() -> None:
    metrics = Metrics()
    scheduler, request = scheduler_of(metrics), generation("a")
    scheduler.add(request)
    scheduler.place(ENGINES)
    scheduler.requeue_running()  # The engine was lost: still no token.
    assert value(metrics, "plait_sample_wait_seconds_count") == 0
    scheduler.place(ENGINES)
    request.append(ChunkResult("a", POLICY, (5,), (-1.0,), StopReason.BUDGET))
    scheduler.requeue("a")
    assert value(metrics, "plait_sample_wait_seconds_count") == 1
    scheduler.place(ENGINES)
    scheduler.finish("a")
    assert value(metrics, "plait_sample_wait_seconds_count") == 1
    assert value(metrics, "plait_sample_seconds_count") == 1


def test_a_deployment_finds_the_router_behind_it() -> None:
    router = PrefixRouter(Holdings())
    assert prefix_router(ObservedScheduler(Metrics(), ContextScheduler(router=router))) is router
    assert prefix_router(scheduler_of(Metrics())) is None, "it goes by where things ran"


def test_a_cancelled_sample_leaves_nothing_behind() -> None:
    metrics = Metrics()
    scheduler = scheduler_of(metrics)
    for name in ("waiting", "running"):
        scheduler.add(generation(name))
    scheduler.place(ENGINES)
    for name in ("waiting", "running", "never here"):
        scheduler.remove(name)
    assert not scheduler._added_s
    assert not scheduler._without_tokens
    assert value(metrics, "plait_sample_seconds_count") == 0
