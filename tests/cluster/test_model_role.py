"""What a client's calls do to its model, on one device driven by hand."""

import os
import re
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from plait.cluster.model_messages import (
    METRIC_REDUCTIONS,
    OPENING,
    CallDone,
    CallFailed,
    CloseModel,
    DiscardGradients,
    OpenModel,
)
from plait.config.task import LossSettings
from plait.lora.mix import FusedAdapter
from plait.state.records import list_steps
from plait.training.trainer import AdapterTrainer
from plait.types.lora import LoraConfig
from tests.cluster.models import LORA, Device, backward, data, decoder, forward, load, rows, save, seq_ids, step
from tests.training.tiny import plain_logprobs, with_own_logprobs


@pytest.fixture
def device(tmp_path: Path) -> Device:
    device = Device(tmp_path)
    device.open()
    return device


def trained(device: Device, seq_id: int = 1, seed: int = 0, model_id: str = "a") -> CallDone:
    """One step of training: two calls from `seq_id` on."""
    device.done(backward(seq_id, data(seed), model_id))
    return device.done(step(seq_id + 1, model_id))


# ---- passes


def test_gradients_of_calls_add_up_to_those_of_one_call_with_all(tmp_path: Path) -> None:
    device = Device(tmp_path)
    norms = {}
    for model_id, calls in {
        "once": [data(0)],
        "twice": [data(0), data(0)],
        "parts": [data(0), data(1)],
        "all": [data(0) + data(1)],
    }.items():
        device.open(model_id)
        for seq_id, datums in enumerate(calls, start=1):
            device.done(backward(seq_id, datums, model_id))
        norms[model_id] = device.done(step(9, model_id)).metrics["grad_norm"]
    assert norms["twice"] == pytest.approx(2 * norms["once"], rel=1e-5)
    assert norms["parts"] == pytest.approx(norms["all"], rel=1e-5)


def test_a_pass_gives_every_targets_logprob_and_sums(device: Device) -> None:
    datums = data()
    done = device.done(backward(1, datums))
    trainer = device.role.models["a"].adapter.trainer
    assert isinstance(trainer, AdapterTrainer)
    adapter = trainer.adapter_tensors()
    for datum, found in zip(datums, rows(done), strict=True):
        assert found == pytest.approx(plain_logprobs(decoder(), datum, adapter, LORA).tolist(), abs=1e-5)
    assert done.num_tokens == done.metrics["num_tokens"] == sum(len(datum.tokens) for datum in datums)
    assert done.device_s > 0
    assert done.ref.policy.version == 0


def test_forward_only_has_the_loss_and_logprobs_of_backward_and_changes_nothing(device: Device) -> None:
    for kind in ("importance_sampling", "cross_entropy", "ppo", "dro", "gspo", "stable_reinforce"):
        loss = LossSettings(kind=kind).model_dump_json()
        only, both = device.done(forward(1, loss_json=loss)), device.done(backward(1, loss_json=loss))
        assert rows(only) == rows(both)
        assert only.metrics.keys() == both.metrics.keys()
        assert only.metrics == pytest.approx(both.metrics, abs=1e-6)
        assert METRIC_REDUCTIONS.keys() >= both.metrics.keys()
        device.send(DiscardGradients("a"))
    device.done(forward(1))
    digest = device.role.models["a"].adapter.record.adapter_digest
    stepped = device.done(step(2))
    assert stepped.metrics == {"grad_norm": 0.0}
    assert (stepped.ref.policy.version, stepped.ref.digest) == (1, digest)


def test_metrics_of_a_step_are_known(device: Device) -> None:
    metrics = trained(device).metrics
    assert METRIC_REDUCTIONS.keys() >= metrics.keys()
    assert metrics["learning_rate"] == 1e-2


def test_own_logprobs_have_ratio_one(device: Device) -> None:
    datums = data()
    own = with_own_logprobs(datums, [torch.tensor(row).numpy() for row in rows(device.done(forward(1, datums)))])
    metrics = device.done(backward(2, own)).metrics
    assert (metrics["ratio_mean"], metrics["logprob_gap_max"]) == pytest.approx((1.0, 0.0), abs=1e-5)


def test_a_rate_of_zero_moves_nothing_but_the_moments(device: Device) -> None:
    before = device.role.models["a"].adapter.record
    device.done(backward(1))
    stepped = device.done(step(2, learning_rate=0.0))
    after = device.role.models["a"].adapter.record
    assert stepped.ref.digest == before.adapter_digest
    assert after.optimizer_digest != before.optimizer_digest


def test_discarded_gradients_are_gone_and_only_those_before(device: Device) -> None:
    device.send(backward(1, data(0)), DiscardGradients("a"), backward(2, data(1)), step(3))
    device.work()
    other = Device(device.folder / "other")
    other.open()
    assert device.replies[-1].ref.digest == trained(other, 2, seed=1).ref.digest  # type: ignore[union-attr]


# ---- versions and checkpoints


def test_versions_are_durable_and_the_last_two_stay(device: Device) -> None:
    for number in range(1, 5):
        done = trained(device, 2 * number - 1, seed=number)
        assert done.ref.policy.version == number
        assert Path(done.ref.path, "adapter_model.safetensors").is_file()
    assert list_steps(device.folder / "a") == [3, 4]
    again = Device(device.folder)
    device.send(CloseModel("a"))
    opened = again.open()
    assert (opened.ref, opened.seq_id, opened.damage) == (done.ref, 8, ())


def test_a_model_that_was_closed_goes_on_bit_for_bit(device: Device) -> None:
    trained(device)
    whole = Device(device.folder / "other")
    whole.open()
    trained(whole)
    device.send(CloseModel("a"))
    assert device.open().seq_id == 2
    assert trained(device, 3, seed=5).ref.digest == trained(whole, 3, seed=5).ref.digest


@pytest.mark.parametrize("with_optimizer", [True, False])
def test_save_then_load_or_open_is_bit_for_bit(device: Device, tmp_path: Path, with_optimizer: bool) -> None:
    trained(device)
    saved = device.done(save(3, tmp_path / "checkpoints" / "first"))
    assert saved.ref.path == str(tmp_path / "checkpoints" / "first")
    assert saved.size_bytes == sum(file.stat().st_size for file in Path(saved.ref.path).iterdir())
    goes_on = trained(device, 4, seed=5)
    source = tmp_path / "checkpoints" / "first"
    loaded = device.done(load(6, source, with_optimizer))
    assert (loaded.ref.policy.version, loaded.ref.digest) == (3, saved.ref.digest)
    opened = device.open("b", source_folder=str(source), with_optimizer=with_optimizer)
    assert (opened.ref.policy.version, opened.seq_id, opened.ref.digest) == (0, 0, saved.ref.digest)
    ends = {trained(device, 7, seed=5).ref.digest, trained(device, 1, seed=5, model_id="b").ref.digest}
    assert len(ends) == 1
    assert (ends == {goes_on.ref.digest}) is with_optimizer  # Fresh moments step otherwise.


def test_a_checkpoint_outlives_its_record_and_later_training(device: Device, tmp_path: Path) -> None:
    """Train, save, train on, evaluate: neither is touched by the other."""
    trained(device)
    saved = device.done(save(3, tmp_path / "old"))
    before = rows(device.done(forward(4)))
    for number in range(3):
        trained(device, 5 + 2 * number, seed=number)
    live = rows(device.done(forward(12)))
    assert live != before
    old = device.open("old", source_folder=str(tmp_path / "old"))
    assert old.ref.digest == saved.ref.digest
    assert rows(device.done(forward(1, model_id="old"))) == before
    assert rows(device.done(forward(13))) == live


def test_saving_again_replaces_the_folder(device: Device, tmp_path: Path) -> None:
    device.done(save(1, tmp_path / "x"))
    latest = trained(device, 2)
    saved = device.done(save(4, tmp_path / "x", with_optimizer=False))
    assert saved.ref.digest == latest.ref.digest
    names = {file.name for file in (tmp_path / "x").iterdir()}
    assert names == {"adapter_model.safetensors", "adapter_config.json", "record.json"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".tmp-")]


def test_loading_forgets_waiting_gradients(device: Device, tmp_path: Path) -> None:
    device.done(save(1, tmp_path / "x"))
    device.done(backward(2))
    device.done(load(3, tmp_path / "x"))
    assert device.done(step(4)).metrics == {"grad_norm": 0.0}


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        (msgspec.structs.replace(LORA, rank=8), "has rank 4; this model has 8"),
        (msgspec.structs.replace(LORA, alpha=4.0), "has alpha 8.0; this model has 4.0"),
        (msgspec.structs.replace(LORA, target_modules=("q_proj",)), r"target_modules .*'v_proj'.*this model has \('q_proj',\)"),
    ],
)
def test_a_checkpoint_of_another_shape_is_a_user_error(device: Device, tmp_path: Path, lora: LoraConfig, message: str) -> None:
    device.done(save(1, tmp_path / "x"))
    failed = device.failed(OpenModel("b", "local", lora, str(tmp_path / "b"), source_folder=str(tmp_path / "x")))
    assert failed.is_user_error
    assert failed.seq_id == OPENING
    assert re.search(message, failed.error), failed.error
    device.open("c", lora)
    assert device.failed(load(1, tmp_path / "x", model_id="c")).error == failed.error


def test_a_checkpoint_of_another_base_or_without_moments_is_a_user_error(device: Device, tmp_path: Path) -> None:
    device.done(save(1, tmp_path / "x", with_optimizer=False))
    assert "no optimizer state" in device.failed(load(2, tmp_path / "x")).error
    other = Device(tmp_path / "other", digest="another")
    other.open()
    failed = other.failed(load(1, tmp_path / "x", with_optimizer=False))
    assert failed.is_user_error
    assert "base base" in failed.error
    assert "base another" in failed.error


def test_a_missing_checkpoint_is_the_services_fault(device: Device, tmp_path: Path) -> None:
    assert not device.failed(load(1, tmp_path / "nowhere")).is_user_error


# ---- failures


def bad_calls() -> dict[str, Any]:
    datum = data()[0]
    far = msgspec.structs.replace(datum, logprobs=(-1e4,) * len(datum.tokens))
    nan = msgspec.structs.replace(datum, advantages=(float("nan"),) * len(datum.tokens))
    return {
        "unknown loss": backward(2, loss_json='{"kind": "reinforce"}'),
        "ragged": backward(2, [msgspec.structs.replace(datum, weights=(1.0,))]),
        "token": backward(2, [msgspec.structs.replace(datum, tokens=(9999,) * len(datum.tokens))]),
        "far off": backward(2, [far]),
        "not finite": backward(2, [nan]),
        "not finite, forward only": forward(2, [nan]),
        "lacks advantages": forward(2, [msgspec.structs.replace(datum, advantages=())]),
        "penalty": forward(2, loss_json='{"kl_to_base": 1.0}'),
        "optimizer": step(2, optimizer_json='{"learning_rate": -1}'),
        "not json": step(2, optimizer_json="{"),
    }


@pytest.mark.parametrize("fault", bad_calls())
def test_a_users_fault_fails_its_call_and_changes_nothing(device: Device, fault: str) -> None:
    device.done(backward(1))
    failed = device.failed(bad_calls()[fault])
    assert failed.is_user_error, failed.error
    assert failed.seq_id == 2
    other = Device(device.folder / "other")
    other.open()
    assert device.done(step(3)).ref.digest == trained(other).ref.digest


def test_an_error_of_the_service_tells_where(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(FusedAdapter, "__init__", broken)
    failed = device.failed(backward(1))
    assert not failed.is_user_error
    assert failed.error.endswith("RuntimeError: no luck")
    assert "in broken" in failed.error


def test_calls_of_a_model_that_is_not_open_fail(tmp_path: Path) -> None:
    device = Device(tmp_path)
    assert "'a' is not open" in device.failed(step(1)).error
    device.send(DiscardGradients("a"), CloseModel("a"))
    assert (len(device.replies), device.closed) == (1, ["a"])


@contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    """As on a full disk: a longer file cannot be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_version_before(device: Device, tmp_path: Path) -> None:
    before = trained(device)
    device.done(save(3, tmp_path / "x"))
    for call in (step(5), load(5, tmp_path / "x")):
        device.done(backward(4))
        with file_size_limit(1000):
            failed = device.failed(call)
        assert "cannot write" in failed.error
        assert not failed.is_user_error
        assert device.role.models["a"].adapter.ref("local") == before.ref
    assert device.done(step(6)).ref.digest == before.ref.digest, "the gradients are gone, and so is the failed step"
    other = Device(tmp_path / "other")
    other.open()
    trained(other)
    assert trained(device, 7, seed=9).ref.digest == trained(other, 3, seed=9).ref.digest, "the moments are as before too"


def test_a_version_whose_folder_appeared_in_a_failed_step_is_taken_away(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.rename

    def rename_then_fail(source: Path, target: Path) -> None:
        rename(source, target)
        if target.name == "000001":
            raise OSError(5, "input/output error")

    device.done(backward(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename_then_fail)
        device.failed(step(2))
    assert list_steps(device.folder / "a") == [0]
    assert trained(device, 3).ref.policy.version == 1


def test_a_model_that_cannot_go_back_gives_up_its_calls(device: Device) -> None:
    trained(device)
    for record in (device.folder / "a").glob("0*"):
        shutil.rmtree(record)
    device.send(backward(3), step(4), backward(5), step(6))
    with file_size_limit(1000):
        device.work()
    assert seq_ids(device.replies)[-4:] == [("a", seq_id) for seq_id in (3, 4, 5, 6)]
    assert [isinstance(reply, CallFailed) for reply in device.replies[-4:]] == [False, True, True, True]
    assert "not open" in device.failed(step(7)).error


# ---- order


def test_calls_of_a_model_run_in_order_and_are_answered_once(device: Device) -> None:
    device.send(*(call for n in range(4) for call in (backward(2 * n + 1, data(n)), step(2 * n + 2))))
    device.work()
    assert seq_ids(device.replies) == [("a", seq_id) for seq_id in range(1, 9)]


def test_a_short_call_ends_before_another_models_long_one(tmp_path: Path) -> None:
    device = Device(tmp_path, micro_batch_tokens=16)
    device.open("long")
    device.open("short")
    device.send(backward(1, data(0, num_groups=8), "long"))
    device.send(backward(1, data(1, num_groups=1)[:1], "short"), step(2, "short"))
    device.work()
    assert seq_ids(device.replies) == [("short", 1), ("short", 2), ("long", 1)]


def test_interleaving_changes_no_bit(tmp_path: Path) -> None:
    together = Device(tmp_path / "together", micro_batch_tokens=32)
    for model_id in "ab":
        together.open(model_id)
    for n in range(2):
        for seed, model_id in enumerate("ab"):
            together.send(backward(2 * n + 1, data(seed, 3), model_id), step(2 * n + 2, model_id))
    together.work()
    for seed, model_id in enumerate("ab"):
        alone = Device(tmp_path / f"alone-{model_id}", micro_batch_tokens=32)
        alone.open(model_id)
        for n in range(2):
            alone.done(backward(2 * n + 1, data(seed, 3), model_id))
            last = alone.done(step(2 * n + 2, model_id))
        assert together.role.models[model_id].adapter.record.adapter_digest == last.ref.digest


def test_a_closed_models_calls_are_dropped_without_an_answer(device: Device) -> None:
    device.open("b")
    before = len(device.replies)
    device.send(backward(1), step(2), backward(1, model_id="b"), CloseModel("a"))
    device.work()
    assert seq_ids(device.replies[before:]) == [("b", 1)]
    assert device.open().seq_id == 0
