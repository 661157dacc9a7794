"""Base weights: loaded and checked from a folder or a GGUF file.

- A loaded model holds exactly the tensors `tensor_shapes` lists, all [out, in], of one dtype on one device.
- A tensor that is missing, unused or of another shape is an error that names it.
- Each tensor is cast as it is read, so that peak memory stays near one copy of the result.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from plait.models.hf_config import read_config, read_json
from plait.models.tensor_names import hf_name, tensor_shapes
from plait.types.errors import ModelError
from plait.types.model import ModelConfig

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
MAX_NAMED = 5
"""An error names at most so many tensors."""


def load_model(
    path: Path, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Read a model folder or a .gguf file. Raises `ModelError` naming the file, tensor or setting that does not fit."""
    if path.suffix == ".gguf":
        from plait.models.gguf_file import GgufFile

        gguf = GgufFile(path)
        read = {name: (lambda name=name: torch.from_numpy(gguf.tensor(name))) for name in gguf.tensor_names()}
        return gguf.config, _read_all(gguf.config, read, {name: name for name in read}, dtype, device, path)
    config = read_config(path)
    with ExitStack() as stack:
        readers = _open_files(path, stack)
        return config, _read_all(config, readers, _plait_names(config, readers), dtype, device, path)


def base_digest(weights: Mapping[str, Tensor]) -> str:
    """blake2b (hex, 128 bits) over names, dtypes, shapes and bytes; independent of the order of the mapping."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _open_files(folder: Path, stack: ExitStack) -> dict[str, Callable[[], Tensor]]:
    """A reader for every tensor in the folder's safetensors files, by its name there."""
    readers: dict[str, Callable[[], Tensor]] = {}
    for path in weight_files(folder):
        try:
            file = stack.enter_context(safe_open(path, framework="pt", device="cpu"))
        except (SafetensorError, FileNotFoundError) as error:
            raise ModelError(f"{path} cannot be read: {error}.", "Fetch the file again.") from error
        readers |= {name: (lambda file=file, name=name: file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    return readers


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder: the single one, or the shards of its index. Raises `ModelError` if there are none."""
    if (folder / INDEX_FILE).exists():
        shards = read_json(folder / INDEX_FILE).get("weight_map", {})
        return [folder / name for name in sorted(set(shards.values()))]
    if (folder / SINGLE_FILE).exists():
        return [folder / SINGLE_FILE]
    raise ModelError(f"{folder} has neither {SINGLE_FILE} nor {INDEX_FILE}.", "Only safetensors and GGUF weights are read.")


def _plait_names(config: ModelConfig, stored: Iterable[str]) -> dict[str, str]:
    """Stored name -> name here. Unknown names stay as they are and so are reported as unused."""
    known = {hf_name(name): name for name in tensor_shapes(config)}
    return {name: known.get(name, name) for name in stored if not _is_redundant(config, name)}


def _is_redundant(config: ModelConfig, name: str) -> bool:
    """Copies that some checkpoints carry of what the configuration says already."""
    return name.endswith("rotary_emb.inv_freq") or (config.tied_embeddings and name == "lm_head.weight")


def _read_all(
    config: ModelConfig,
    readers: Mapping[str, Callable[[], Tensor]],
    names: Mapping[str, str],
    dtype: torch.dtype,
    device: torch.device | str,
    path: Path,
) -> dict[str, Tensor]:
    shapes = tensor_shapes(config)
    _check_names(shapes.keys(), names.values(), path)
    stored_names = {name: stored for stored, name in names.items()}
    weights = {}
    for name, shape in shapes.items():
        tensor = readers[stored_names[name]]()
        if tuple(tensor.shape) != shape:
            message = f"{path}: tensor {stored_names[name]} has shape {tuple(tensor.shape)}, config.json implies {shape}."
            raise ModelError(message, "Configuration and weights are of different models.")
        # A copy even at the same dtype: the memory is then our own and aligned, not a view of the mapped file.
        weights[name] = tensor.to(device=device, dtype=dtype, copy=True)
    return weights


def _check_names(wanted: Iterable[str], found: Iterable[str], path: Path) -> None:
    missing, unused = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    if missing:
        raise ModelError(f"{path} lacks {_listed([hf_name(name) for name in missing])}.", "Fetch the model again.")
    if unused:
        message = f"{path} holds tensors that no part of the model uses: {_listed(unused)}."
        raise ModelError(message, "config.json may be of another model.")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
