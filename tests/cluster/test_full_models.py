"""Client-driven models that train all weights, on the role itself."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from plait.cluster.model_messages import CallDone, ModelOpened
from plait.cluster.model_role import ModelRole
from plait.cluster.rollout_role import load_model, load_policy
from plait.cluster.trained_weights import AdapterBase
from plait.lora.mix import FusedAdapter
from plait.models.decoder import Decoder
from plait.models.tiny import make_tiny_model
from plait.models.weights import base_digest
from plait.models.weights import load_model as load_base
from plait.state.checkpoint import read_checkpoint
from plait.state.records import MODEL_FILE, list_steps
from plait.training.training_pass import PassSettings
from plait.types.errors import AdapterError, StateError
from plait.types.lora import LoraConfig
from tests.cluster.models import LORA, Device, backward, data, forward, load, rows, save, step
from tests.training.tiny import plain_logprobs


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> AdapterBase:
    folder = make_tiny_model(tmp_path_factory.mktemp("base"))
    config, weights = load_base(folder)
    return AdapterBase(Decoder(config, weights), base_digest(weights), str(folder), PassSettings())


class FullDevice(Device):
    def __init__(self, folder: Path, base: AdapterBase) -> None:
        super().__init__(folder)
        self.role = ModelRole(base, self.queue)

    def open(self, model_id: str = "a", lora: LoraConfig = LORA, **more: Any) -> ModelOpened:
        return super().open(model_id, lora, **{"training": "full", **more})

    def train(self, *seq_ids: int, model_id: str = "a") -> CallDone:
        for seq_id in seq_ids:
            self.done(backward(2 * seq_id, model_id=model_id))
            done = self.done(step(2 * seq_id + 1, model_id=model_id))
        return done

    def logprobs(self, model_id: str = "a") -> list[list[float]]:
        return rows(self.done(forward(99, model_id=model_id)))


@pytest.fixture
def device(tmp_path: Path, base: AdapterBase) -> FullDevice:
    return FullDevice(tmp_path, base)


def assert_computes(decoder: Decoder, logprobs: list[list[float]]) -> None:
    for datum, row in zip(data(), logprobs, strict=True):
        torch.testing.assert_close(plain_logprobs(decoder, datum, None), torch.tensor(row), atol=2e-6, rtol=1e-6)


def test_it_starts_as_the_base_and_every_version_is_a_model_to_sample_from(device: FullDevice, base: AdapterBase) -> None:
    opened = device.open()
    assert_computes(base.decoder, device.logprobs())
    assert_computes(load_model(opened.ref, base.decoder), device.logprobs())
    done = device.train(1)
    policy = load_policy(done.ref, base.decoder)
    assert isinstance(policy, Decoder)
    assert_computes(policy, device.logprobs())
    before = load_model(opened.ref, base.decoder)
    assert not torch.equal(before.final_norm, policy.final_norm)
    assert not torch.equal(before.embedding_VE, policy.embedding_VE)


def test_only_the_last_two_versions_stay(device: FullDevice) -> None:
    device.open()
    device.train(1, 2, 3)
    assert list_steps(device.folder / "a") == [2, 3]


def test_saved_state_goes_on_in_another_model_as_in_its_own(device: FullDevice, tmp_path: Path) -> None:
    device.open()
    device.train(1)
    saved = device.done(save(50, tmp_path / "saved"))
    files = {path.name: path.stat().st_size for path in (tmp_path / "saved").iterdir()}
    assert files.keys() == {MODEL_FILE, "config.json", "optimizer.safetensors", "record.json"}
    assert saved.size_bytes == sum(files.values())
    device.open("b")
    device.done(load(1, tmp_path / "saved", model_id="b"))
    device.open("c", source_folder=str(tmp_path / "saved"))
    own = device.train(2).ref.digest
    assert device.train(2, model_id="b").ref.digest == own
    assert device.train(2, model_id="c").ref.digest == own
    device.open("d", source_folder=str(tmp_path / "saved"), with_optimizer=False)
    assert device.logprobs("d") != device.logprobs("a")
    assert device.train(2, model_id="d").ref.digest != own


def test_opened_again_it_is_where_it_was(device: FullDevice, tmp_path: Path, base: AdapterBase) -> None:
    device.open()
    device.train(1)
    second = FullDevice(tmp_path / "other", base)
    second.open()
    second.train(1)
    before = device.logprobs()
    device.open()
    assert device.logprobs() == before
    assert device.train(2).ref.digest == second.train(2).ref.digest


def test_a_step_that_the_disk_does_not_take_changes_nothing(device: FullDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    device.open()
    device.train(1)
    before = device.logprobs()
    device.done(backward(20))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert "No space left" in device.failed(step(21)).error
    assert device.logprobs() == before
    device.train(11)
    assert device.logprobs() != before


def test_adapters_and_models_do_not_load_each_other(device: FullDevice, tmp_path: Path) -> None:
    device.open("whole")
    device.open("adapter", training="lora")
    device.done(save(1, tmp_path / "whole-saved", model_id="whole"))
    device.done(save(1, tmp_path / "adapter-saved", model_id="adapter"))
    assert read_checkpoint(tmp_path / "whole-saved").training == "full"
    into_model = device.failed(load(2, tmp_path / "adapter-saved", model_id="whole"))
    assert "holds an adapter; this model trains all weights" in into_model.error
    assert into_model.is_user_error
    into_adapter = device.failed(load(2, tmp_path / "whole-saved", model_id="adapter"))
    assert "holds all weights; this model trains an adapter" in into_adapter.error


def test_a_damaged_or_foreign_model_is_not_sampled_from(device: FullDevice, base: AdapterBase, tmp_path: Path) -> None:
    ref = device.open().ref
    other, weights = load_base(make_tiny_model(tmp_path / "other", num_layers=1))
    with pytest.raises(AdapterError, match=r"unknown tensor 'model\.layers\.1"):
        load_policy(ref, Decoder(other, weights))
    path = Path(ref.path) / MODEL_FILE
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(StateError, match=f"{path} is damaged: its digest"):
        load_policy(ref, base.decoder)


def test_an_adapters_version_is_an_adapter(device: FullDevice, base: AdapterBase) -> None:
    ref = device.open(training="lora").ref
    assert isinstance(load_policy(ref, base.decoder), FusedAdapter)
