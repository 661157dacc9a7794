"""The weights that an `FsdpTrainer` starts from, out of a model folder: each rank reads its own slices of each tensor.

Of a GGUF file each rank reads everything, one tensor at a time.

No rank holds a full tensor, nor the model in the dtype of its files beside the trainer's float32: one slice at a time is converted.
"""

from pathlib import Path

import torch

from plait.models.tensor_names import hf_name
from plait.models.weights import weight_files
from plait.sharding.layout import Sharding, TensorLayout
from plait.sharding.plan import read_plan
from plait.sharding.shard_file import ShardFile
from plait.sharding.torch_bytes import TORCH_DTYPES, local_part, sharding_of, tensor_bytes
from plait.training.fsdp_trainer import FsdpTrainer
from plait.types.errors import ModelError


@torch.no_grad()
def load_base(trainer: FsdpTrainer, folder: Path) -> int:
    """Bytes that this rank has read. Nobody waits for anybody.

    Raises ModelError if a tensor is missing, StateError if one has another shape or a file is torn.
    """
    if folder.suffix == ".gguf":
        return _load_gguf(trainer, folder)
    weights, bytes_read = trainer.weights(), 0
    left = {hf_name(name): name for name in weights}
    wanted = sharding_of(weights)
    for path in weight_files(folder):
        with ShardFile(path) as file:
            found = {name: layout for name, layout in file.layouts().items() if name in left}
            for stored, layout in found.items():
                name = left.pop(stored)
                local_part(weights[name]).copy_(_read(file, stored, layout, wanted, name, trainer.rank))
            bytes_read += file.bytes_read
    if left:
        raise ModelError(f"{folder} lacks {', '.join(sorted(left)[:5])}.", "Fetch the model again.")
    return bytes_read


def _load_gguf(trainer: FsdpTrainer, path: Path) -> int:
    from plait.models.gguf_file import GgufFile

    file = GgufFile(path)
    trainer.take(lambda name: torch.from_numpy(file.tensor(name)))
    return path.stat().st_size


def _read(file: ShardFile, stored: str, layout: TensorLayout, wanted: Sharding, name: str, rank: int) -> torch.Tensor:
    """The rank's slice in the dtype of the file."""
    kept = wanted.tensors[name]
    saved = Sharding((1,), {stored: layout})
    own = Sharding(wanted.mesh, {stored: TensorLayout(kept.shape, layout.dtype, kept.splits)})
    target = torch.empty(own.shard_shape(stored, rank), dtype=TORCH_DTYPES[layout.dtype])
    for piece in read_plan(saved, own, rank):
        file.read(piece, tensor_bytes(target))
    return target
