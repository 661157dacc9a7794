"""A version of a task that trains all weights as a model folder that other tools load."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from plait.state.records import MODEL_FILE
from plait.types.errors import StateError
from plait.types.policy import AdapterRef

DTYPE_KEYS = ("dtype", "torch_dtype")
"""By which a config.json says what its weights are in."""


def export_model(base: Path, ref: AdapterRef, dtype: str, to: Path) -> None:
    """Write `to`, new or empty, from a version's folder and the base's configuration and tokenizer; whole or not at all.

    Weights are rounded to the `dtype` that the run computes in, so that the folder is the very policy that was sampled.
    """
    import torch
    from safetensors.torch import save_file

    from plait.lora.merge import COPIED_FILES
    from plait.state.tensor_file import load_converted

    if to.exists() and any(to.iterdir()):
        raise StateError(f"{to} exists and is not an empty folder.", "Choose another folder.")
    to.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".tmp-{to.name}-", dir=to.parent))
    try:
        rounded = load_converted(
            Path(ref.path) / MODEL_FILE, ref.digest, lambda tensor: tensor.to(getattr(torch, dtype), copy=True)
        )
        save_file(rounded, temporary / MODEL_FILE, metadata={"format": "pt"})
        (temporary / MODEL_FILE).chmod(0o644)  # The library lets only the owner read.
        (temporary / "config.json").write_text(json.dumps(_config(base, ref, dtype), indent=2) + "\n", encoding="utf-8")
        for name in COPIED_FILES:
            if (base / name).exists():
                shutil.copyfile(base / name, temporary / name)
        temporary.chmod(0o755)
        temporary.rename(to)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _config(base: Path, ref: AdapterRef, dtype: str) -> dict[str, Any]:
    """The base's own, since it may say more than training needs; the version's, where the base is one GGUF file."""
    source = base if (base / "config.json").is_file() else Path(ref.path)
    raw = json.loads((source / "config.json").read_text(encoding="utf-8"))
    return {key: value for key, value in raw.items() if key not in DTYPE_KEYS} | {"dtype": dtype}
