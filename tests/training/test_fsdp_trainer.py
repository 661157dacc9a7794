"""Full-parameter training in slices over real processes, against one process and against a plain loop."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from plait.models.tiny import make_tiny_model
from plait.sharding.rank_group import RankGroup
from plait.state.tensor_file import encode_tensors
from plait.training.fsdp_checkpoint import saved_steps
from plait.training.training_pass import PassSettings
from plait.types.errors import WorkerFailure
from tests.models.test_gguf_file import write_gguf
from tests.sharding import work
from tests.sharding.groups import rank_group

ROUNDING = 1e-4
"""Of losses and norms where the order of sums is another one, relative."""


@pytest.fixture(scope="module")
def one() -> Iterator[RankGroup]:
    with rank_group(1) as group:
        yield group


@pytest.fixture(scope="module")
def two() -> Iterator[RankGroup]:
    with rank_group(2) as group:
        yield group


@pytest.fixture(scope="module")
def unbroken(one: RankGroup) -> tuple[list[tuple[float, float]], str]:
    """Losses and norms of seven steps at one rank, and the digest of the state after them."""
    one.run(work.make_trainer)
    assert one.run(work.num_micro_batches)[0] > 3
    return one.run(work.train, range(7))[0], one.run(work.state_digest)[0]


@pytest.fixture(scope="module")
def saved(one: RankGroup, two: RankGroup, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two steps at one rank, three at two, two at one again; at each turn saved and loaded in the format named."""
    losses, reads = {}, {}
    for kind in ("shards", "dcp"):
        folder = tmp_path_factory.mktemp(kind)
        for group in (one, two):
            group.run(work.make_trainer)
        losses[kind] = one.run(work.train, range(2))[0]
        one.run(work.save, folder)
        reads[kind] = two.run(work.load, folder, kind)
        losses[kind] += two.run(work.train, range(2, 5))[0]
        two.run(work.save, folder)
        reads[kind] += one.run(work.load, folder, kind)
        losses[kind] += one.run(work.train, range(5, 7))[0]
    return {"losses": losses, "reads": reads, "digest": one.run(work.state_digest)[0], "folder": folder}


@pytest.mark.parametrize("kind", ["shards", "dcp"])
def test_one_two_and_one_rank_again_have_the_losses_of_one(
    unbroken: tuple[list[tuple[float, float]], str], saved: dict[str, Any], kind: str
) -> None:
    losses, digest = unbroken
    assert saved["losses"][kind] == losses
    assert saved["digest"] == digest


def test_a_rank_reads_the_bytes_of_its_slices(saved: dict[str, Any]) -> None:
    assert all(read == needed > 0 for read, needed in saved["reads"]["shards"])
    assert all(read > needed for read, needed in saved["reads"]["dcp"])
    assert saved_steps(saved["folder"] / "shards") == 5


@pytest.mark.parametrize("kind", ["shards", "dcp"])
@pytest.mark.parametrize("moment", ["writing", "publishing"])
def test_a_rank_killed_while_saving_leaves_the_former_checkpoint(one: RankGroup, tmp_path: Path, kind: str, moment: str) -> None:
    with rank_group(2) as group:
        group.run(work.make_trainer)
        group.run(work.train, range(1))
        group.run(work.save, tmp_path)
        with pytest.raises(WorkerFailure, match="exit code -9"):
            group.run(work.save_and_die, tmp_path, kind, moment)
        assert not any(process.is_alive() for process in group.processes)
    one.run(work.make_trainer)
    one.run(work.train, range(1))
    expected = one.run(work.state_digest)
    one.run(work.make_trainer)
    one.run(work.load, tmp_path, kind)
    assert one.run(work.state_digest) == expected
    one.run(work.save, tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dcp", "shards"]


@pytest.mark.parametrize(
    ("num_ranks", "arguments"),
    [
        (1, (work.SETTINGS, "float32")),
        (1, (PassSettings(micro_batch_tokens=24, checkpoint_layers=True), "float32")),
        (2, (work.SETTINGS, "float32", (), 4)),
    ],
    ids=["one", "checkpointed layers", "rounds of four"],
)
def test_bits_stay_where_sums_do(
    one: RankGroup, two: RankGroup, unbroken: tuple[list[tuple[float, float]], str], num_ranks: int, arguments: tuple
) -> None:
    group = {1: one, 2: two}[num_ranks]
    group.run(work.make_trainer, *arguments)
    found, expected = group.run(work.train, range(2)), unbroken[0][:2]
    for losses in found:
        for pair, wanted in zip(losses, expected, strict=True):
            assert pair == (wanted if num_ranks == 1 else pytest.approx(wanted, rel=ROUNDING))


def test_bfloat16_arithmetic_has_the_same_bits_at_one_and_two(one: RankGroup, two: RankGroup) -> None:
    losses = []
    for group in (one, two):
        group.run(work.make_trainer, work.SETTINGS, "bfloat16")
        losses.append(group.run(work.train, range(2))[0])
        assert all(group.run(work.compare_after_reset, "bfloat16"))
    assert losses[0] == losses[1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_everything_has_the_bits_of_training_in_one_process(one: RankGroup, two: RankGroup, dtype: str) -> None:
    """Results, norms, weights and moments, with clipping, weight decay and a penalty towards the base."""
    for group in (one, two):
        assert group.run(work.differences_from_full, dtype) == [[]] * len(group.processes)


def test_log_probabilities_have_the_decoders_bits(one: RankGroup, two: RankGroup) -> None:
    for group in (one, two):
        assert all(group.run(work.compare_after_reset, "float32"))


@pytest.mark.parametrize(
    "changes",
    [{}, {"tied_embeddings": False, "qkv_bias": True}, {"qk_norm": True, "family": "qwen3"}],
    ids=["llama", "biases and own unembedding", "norms of heads"],
)
def test_gradients_are_those_of_a_plain_loop(two: RankGroup, changes: dict[str, Any]) -> None:
    for errors in two.run(work.gradient_errors, changes, work.SETTINGS):
        assert max(errors.values()) < 5e-6, errors


def test_three_ranks_and_replicas_of_two_differ_in_rounding(unbroken: tuple[list[tuple[float, float]], str]) -> None:
    with rank_group(4) as group:
        for mesh in ((3,), (2, 2)):
            group.run(work.make_trainer, work.SETTINGS, "float32", mesh)
            found = [losses for losses in group.run(work.train_if_training, range(2)) if losses]
            assert all(losses == found[0] for losses in found)
            for pair, expected in zip(found[0], unbroken[0], strict=False):
                assert pair == pytest.approx(expected, rel=ROUNDING)


def test_ranks_start_from_their_slices_of_a_model_folder(two: RankGroup, tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model", family="qwen2", num_layers=1)
    for num_read, needed, is_same in two.run(work.load_base, folder):
        assert num_read == needed
        assert is_same
    assert all(two.run(work.load_gguf, write_gguf(folder, tmp_path / "model.gguf", GGMLQuantizationType.F32)))
    (folder / "model.safetensors").write_bytes(encode_tensors({"model.norm.weight": np.ones(64, np.float32)}))
    with pytest.raises(WorkerFailure, match=r"lacks model\."):
        two.run(work.load_base_only, folder)


def test_what_cannot_be_done_is_refused_on_every_rank(two: RankGroup) -> None:
    two.run(work.make_trainer)
    expected = ["no gradients wait", "kl_to_base is 0.1, and there is no base", "the loss is nan", "could not be read"]
    for found in two.run(work.errors):
        assert all(part in text for part, text in zip(expected, found, strict=True)), found
