"""An adapter folded into its base: a model folder that needs no adapter.

- `W + alpha / rank * B A` is computed in float32 and rounded once to the dtype the weight is stored in.
- Files of the base keep their names and order; one file's tensors are in memory at a time.
- An adapter on the unembedding of a tied model unties it, or it would change the embedding too.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from plait.lora.modules import UNEMBEDDING
from plait.lora.peft_format import import_adapter
from plait.models.hf_config import parse_config, read_json
from plait.models.tensor_names import hf_name
from plait.models.weights import INDEX_FILE, SINGLE_FILE, weight_files
from plait.types.errors import AdapterError
from plait.types.lora import LoraConfig

EMBEDDING_NAME, UNEMBEDDING_NAME = hf_name("embed_tokens"), hf_name(UNEMBEDDING)
COPIED_FILES = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
)


def merge_into_base(base: Path, adapter: Path, output: Path) -> Path:
    """Write the model folder `output`, which must not exist, from the folders `base` and `adapter`; whole or not at all."""
    if output.exists():
        raise AdapterError(f"{output} exists.", "Name a folder that does not.")
    raw = read_json(base / "config.json")
    config = parse_config(raw)
    lora, tensors = import_adapter(adapter, config)
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".tmp-{output.name}-", dir=output.parent))
    try:
        untied = config.tied_embeddings and UNEMBEDDING in lora.target_modules
        _merge_files(base, temporary, _deltas(lora, tensors), untied)
        if untied:
            raw["tie_word_embeddings"] = False
        (temporary / "config.json").write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
        for name in COPIED_FILES:
            if (base / name).exists():
                shutil.copyfile(base / name, temporary / name)
        temporary.chmod(0o755)
        temporary.rename(output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return output


class _Delta:
    """What an adapter adds to one weight, made only when it is needed."""

    def __init__(self, a: Tensor, b: Tensor, scaling: float) -> None:
        self._a, self._b, self._scaling = a, b, scaling

    def added_to(self, weight: Tensor) -> Tensor:
        return (weight.float() + self._scaling * (self._b @ self._a)).to(weight.dtype)


def _deltas(lora: LoraConfig, tensors: Mapping[str, Tensor]) -> dict[str, _Delta]:
    """By the base's tensor names."""
    paths = [name.removesuffix(".A") for name in tensors if name.endswith(".A")]
    return {hf_name(path): _Delta(tensors[f"{path}.A"], tensors[f"{path}.B"], lora.scaling) for path in paths}


def _merge_files(base: Path, output: Path, deltas: Mapping[str, _Delta], untied: bool) -> None:
    merged_names: set[str] = set()
    for path in weight_files(base):
        merged = _merged(path, deltas, untied)
        merged_names |= merged.keys()
        save_file(merged, output / path.name, metadata={"format": "pt"})
        if untied and UNEMBEDDING_NAME in merged:
            _extend_index(base, output, path.name)
    missing = sorted(deltas.keys() - merged_names)
    if missing:
        raise AdapterError(f"{base} has no weight {missing[0]} to merge into.", "The adapter is of another model.")
    if (base / INDEX_FILE).exists() and not (output / INDEX_FILE).exists():
        shutil.copyfile(base / INDEX_FILE, output / INDEX_FILE)


def _merged(path: Path, deltas: Mapping[str, _Delta], untied: bool) -> dict[str, Tensor]:
    with safe_open(path, framework="pt", device="cpu") as file:
        merged = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if untied:
        merged.pop(UNEMBEDDING_NAME, None)
        if EMBEDDING_NAME in merged:
            merged[UNEMBEDDING_NAME] = merged[EMBEDDING_NAME].clone()
    with torch.no_grad():
        return {name: deltas[name].added_to(weight) if name in deltas else weight for name, weight in merged.items()}


def _extend_index(base: Path, output: Path, file_name: str) -> None:
    if file_name == SINGLE_FILE:
        return
    index = read_json(base / INDEX_FILE)
    index["weight_map"][UNEMBEDDING_NAME] = file_name
    (output / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
