"""Models whose weights lie on two ranks, on the role itself: this process is the first rank, a child the other."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch.distributed as dist

from plait.cluster.messages import TRAIN, Configure
from plait.cluster.model_messages import CallDone, CloseModel
from plait.cluster.ranks.leader import RankLeader
from plait.cluster.trained_weights import AdapterBase
from plait.config.task import LossSettings, OptimizerSettings
from plait.models.decoder import Decoder
from plait.models.tiny import make_tiny_model
from plait.models.weights import base_digest, load_model
from plait.state.records import MODEL_FILE, OPTIMIZER_FILE, list_steps, step_folder
from plait.training.training_pass import PassSettings
from tests.cluster.models import backward, load, save, step
from tests.cluster.test_full_models import FullDevice

MICRO_BATCH_TOKENS = 24
CLIPPED = OptimizerSettings(learning_rate=1e-2, max_grad_norm=0.05).model_dump_json()
PENALISED = LossSettings(kl_to_base=0.1).model_dump_json()
FILES = (MODEL_FILE, OPTIMIZER_FILE, "config.json")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> AdapterBase:
    folder = make_tiny_model(tmp_path_factory.mktemp("base"))
    config, weights = load_model(folder)
    return AdapterBase(Decoder(config, weights), base_digest(weights), str(folder), PassSettings(MICRO_BATCH_TOKENS))


@pytest.fixture(scope="module")
def sharded(base: AdapterBase) -> Iterator[AdapterBase]:
    """The same base, with all weights over two ranks."""
    settings = Configure(
        name="train", roles=(TRAIN,), model_path=base.name, dtype="float32", device="cpu", threads=1, max_context_tokens=64,
        max_rows=1, slot_tokens=128, pool_tokens=128, batch_invariant="off", micro_batch_tokens=MICRO_BATCH_TOKENS,
        checkpoint_layers=False, num_tasks=1, train_ranks=2, rank_timeout_s=60.0,
    )  # fmt: skip
    leader = RankLeader(settings, "cpu")
    full_weights = leader.join(base.decoder)
    yield AdapterBase(base.decoder, base.digest, base.name, base.passes, full_weights)
    leader.close()
    dist.destroy_process_group()


def train(device: FullDevice, *seq_ids: int) -> CallDone:
    for seq_id in seq_ids:
        device.done(backward(2 * seq_id, loss_json=PENALISED))
        done = device.done(step(2 * seq_id + 1, optimizer_json=CLIPPED))
    return done


def files(device: FullDevice, number: int, model_id: str = "a") -> list[bytes]:
    folder = step_folder(device.folder / model_id, number)
    return [(folder / name).read_bytes() for name in FILES]


def test_what_one_rank_has_saved_two_go_on_with_and_the_reverse(base: AdapterBase, sharded: AdapterBase, tmp_path: Path) -> None:
    """Each version is the same files as with one rank throughout; metrics too."""
    alone = FullDevice(tmp_path / "alone", base)
    alone.open()
    for number, place in enumerate((base, sharded, base, sharded), start=1):
        device = FullDevice(tmp_path / "both", place)
        device.open()
        expected, done = train(alone, number), train(device, number)
        assert (done.ref.digest, done.metrics) == (expected.ref.digest, expected.metrics)
        assert files(device, number) == files(alone, number)
        close(device)
    close(alone)


def close(*devices: FullDevice) -> None:
    for device in devices:
        for model_id in list(device.role.models):
            device.send(CloseModel(model_id))


def test_it_starts_as_the_base_saves_and_loads(base: AdapterBase, sharded: AdapterBase, tmp_path: Path) -> None:
    alone, device = FullDevice(tmp_path / "alone", base), FullDevice(tmp_path / "two", sharded)
    assert device.open().ref.digest == alone.open().ref.digest
    assert files(device, 0) == files(alone, 0)
    assert device.logprobs() == alone.logprobs()
    device.train(1)
    device.done(save(50, tmp_path / "saved"))
    device.open("b")
    device.done(load(1, tmp_path / "saved", model_id="b"))
    device.open("c", source_folder=str(tmp_path / "saved"))
    digest = device.train(2).ref.digest
    assert device.train(2, model_id="b").ref.digest == device.train(2, model_id="c").ref.digest == digest
    device.open("d", source_folder=str(tmp_path / "saved"), with_optimizer=False)
    assert device.train(2, model_id="d").ref.digest != digest
    content = bytearray((tmp_path / "saved" / MODEL_FILE).read_bytes())
    content[-3] ^= 1
    (tmp_path / "saved" / MODEL_FILE).write_bytes(content)
    assert "is damaged: its digest" in device.failed(load(60, tmp_path / "saved")).error
    assert device.train(31, model_id="b").ref.digest == device.train(31, model_id="c").ref.digest
    close(device, alone)


def test_what_fails_on_all_ranks_leaves_them_as_they_were(
    sharded: AdapterBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FullDevice(tmp_path, sharded)
    device.open()
    device.train(1)
    before, datums = device.logprobs(), backward(0).datums
    endless = [msgspec.structs.replace(datum, advantages=(float("nan"),) * len(datum.tokens)) for datum in datums]
    unknown = [msgspec.structs.replace(datum, tokens=(10**6, *datum.tokens[1:])) for datum in datums]
    assert "the loss is nan" in device.failed(backward(20, endless)).error
    assert "the model has ids 0 to" in device.failed(backward(21, unknown)).error
    assert device.done(step(22)).metrics == {"grad_norm": 0.0}
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _full)
        device.done(backward(23))
        assert "No space left" in device.failed(step(24)).error
    assert not [entry for entry in (tmp_path / "a").iterdir() if entry.name.startswith(".tmp")]
    assert list_steps(tmp_path / "a") == [1, 2]
    assert device.logprobs() == before
    assert device.train(13).ref.policy.version == 3
    close(device)


def _full(descriptor: int) -> Any:
    raise OSError(28, "No space left on device")
