"""Models of the Hugging Face hub, resolved once to a local folder.

A complete copy in the hub's cache is used without a call to the network; with HF_HUB_OFFLINE nothing else is.
"""

import json
from pathlib import Path
from typing import Any

from plait.types.errors import ModelError

NEEDED_FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


def fetch_hub_model(hub_id: str) -> Path:
    """The local folder of `hub_id` ("owner/name"), downloaded if it is not complete in the cache.

    Raises `ModelError` if it cannot be had.
    """
    hub = _hub()
    cached = _cached(hub, hub_id)
    if cached is not None:
        return cached
    if hub.constants.HF_HUB_OFFLINE:
        raise ModelError(f"{hub_id!r} is not in the hub's cache and HF_HUB_OFFLINE is set.", "Unset it once to download the model.")
    try:
        folder = Path(hub.snapshot_download(hub_id, allow_patterns=list(NEEDED_FILES)))
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{hub_id!r} cannot be downloaded: {reason}.",
            "It is not a folder here either: check the name, the network and HF_TOKEN.",
        ) from error
    if not is_complete(folder):
        raise ModelError(
            f"{hub_id!r} has no config.json, tokenizer.json or safetensors weights.", "Choose a repository that has them."
        )
    return folder


def is_complete(folder: Path) -> bool:
    """Whether configuration, tokenizer and all weight files are there."""
    if not all((folder / name).is_file() for name in ("config.json", "tokenizer.json")):
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return (folder / "model.safetensors").is_file()
    shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return all((folder / shard).is_file() for shard in shards)


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ModelError(
            "Models of the hub need the package huggingface-hub.", "Install it: pip install 'plait[models]'."
        ) from error
    return huggingface_hub


def _cached(hub: Any, hub_id: str) -> Path | None:
    try:
        folder = Path(hub.snapshot_download(hub_id, allow_patterns=list(NEEDED_FILES), local_files_only=True))
    except (hub.errors.LocalEntryNotFoundError, hub.errors.HFValidationError):
        return None
    return folder if is_complete(folder) else None
