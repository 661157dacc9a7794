"""Adapters as PEFT folders: adapter_config.json and adapter_model.safetensors.

- Export then import gives the same bits. The seed is not kept: it says how an adapter began, not what it is.
- Import refuses what it would not reproduce: a tensor unused, missing or of another shape, a setting that changes what the adapter
  computes, a file that does not state its alpha.
- A digest is over names as stored, dtypes, shapes and bytes, the same as `plait.state` keeps of the file.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from plait.lora.modules import adapter_shapes
from plait.lora.peft_config import parse_peft_config, peft_config
from plait.models.tensor_names import hf_module_name
from plait.types.errors import AdapterError
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
PREFIX = "base_model.model."
DIGEST_BYTES = 16


def export_adapter(folder: Path, lora: LoraConfig, tensors: Mapping[str, Tensor], base_model: str = "") -> None:
    """Write the two files into `folder`, which is made if need be. `base_model` is the name or path PEFT will load it onto."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(peft_config(lora, base_model), indent=2, sort_keys=True) + "\n"
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
    save_file(to_peft_tensors(tensors), folder / WEIGHTS_FILE, metadata={"format": "pt"})


def import_adapter(folder: Path, config: ModelConfig, digest: str = "") -> tuple[LoraConfig, dict[str, Tensor]]:
    """The adapter in `folder`, float32 on the CPU. Raises `AdapterError` naming what does not fit.

    `digest`, if given, is what `adapter_digest` must come to.
    """
    lora = parse_peft_config(_read_config(folder / CONFIG_FILE))
    try:
        stored = load_file(folder / WEIGHTS_FILE)
    except (SafetensorError, OSError) as error:
        raise AdapterError(f"{folder / WEIGHTS_FILE} cannot be read: {error}.", "Export the adapter again.") from error
    tensors = from_peft_tensors(stored, config, lora)
    if digest and adapter_digest(tensors) != digest:
        raise AdapterError(
            f"{folder} has digest {adapter_digest(tensors)}, not {digest}.", "The file was changed: publish it again."
        )
    return lora, tensors


def to_peft_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`layers.0.q_proj.A` -> `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight`, float32 on the CPU."""
    return {_peft_name(name): _plain(name, tensor) for name, tensor in tensors.items()}


def from_peft_tensors(stored: Mapping[str, Tensor], config: ModelConfig, lora: LoraConfig) -> dict[str, Tensor]:
    """The inverse, checked against what the model and `lora` call for. Raises `AdapterError`."""
    shapes = adapter_shapes(config, lora)
    _check_names({_peft_name(name) for name in shapes}, set(stored))
    tensors = {}
    for name, shape in shapes.items():
        tensor = stored[_peft_name(name)]
        if tuple(tensor.shape) != shape:
            message = (
                f"Adapter tensor {_peft_name(name)} has shape {tuple(tensor.shape)}; rank {lora.rank} on this model needs {shape}."
            )
            raise AdapterError(message, "The adapter is of another model, or its rank is wrong.")
        tensors[name] = tensor.to(torch.float32)
    return tensors


def adapter_digest(tensors: Mapping[str, Tensor]) -> str:
    """blake2b (128 bits, hex) over the tensors as PEFT names them, in the order of names."""
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for name, tensor in sorted(to_peft_tensors(tensors).items()):
        hasher.update(f"{name}\0F32\0{tuple(tensor.shape)}\0".encode())
        hasher.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def _peft_name(name: str) -> str:
    path, side = name.rsplit(".", 1)
    return f"{PREFIX}{hf_module_name(path)}.lora_{side}.weight"


def _plain(name: str, tensor: Tensor) -> Tensor:
    if tensor.dtype != torch.float32:
        raise AdapterError(f"Adapter tensor {name} is {tensor.dtype}.", "Adapters are kept in float32.")
    return tensor.detach().cpu().contiguous()


def _check_names(wanted: set[str], found: set[str]) -> None:
    missing, unused = sorted(wanted - found), sorted(found - wanted)
    if missing:
        raise AdapterError(f"The adapter lacks {missing[0]} ({len(missing)} tensors in all).", "target_modules may be wrong.")
    if any(name.endswith("base_layer.weight") for name in unused):
        remedy = "Save it with save_embedding_layers=False: the base model's own weights are used."
        raise AdapterError(f"The adapter brings the base weight {unused[0]}.", remedy)
    if unused:
        raise AdapterError(
            f"The adapter's {unused[0]} is used by nothing ({len(unused)} tensors in all).", "It is of another model."
        )


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise AdapterError(f"{path} cannot be read: {error}.", "Give a folder in PEFT format.") from error
