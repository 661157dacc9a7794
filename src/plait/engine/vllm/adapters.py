"""Policy versions as vLLM's adapters: each version, by its digest, is an adapter of its own, so no cache can mix two.

vLLM keeps the latest in memory and reads others again by their numbers; the files must stay as long as a version is asked for.
"""

import json
from pathlib import Path

from vllm.lora.request import LoRARequest

from plait.lora.peft_config import parse_peft_config
from plait.state.records import ADAPTER_CONFIG_FILE, ADAPTER_FILE
from plait.state.tensor_file import read_tensors
from plait.types.errors import AdapterError
from plait.types.policy import AdapterRef, PolicyVersion

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""That vLLM lays memory out for."""


class VllmAdapters:
    def __init__(self, max_rank: int) -> None:
        self.max_rank = max_rank
        self._known: dict[tuple[PolicyVersion, str], LoRARequest] = {}

    def request(self, ref: AdapterRef) -> LoRARequest:
        """Its adapter. Raises AdapterError for a version whose file does not serve; each is looked into once."""
        key = (ref.policy, ref.digest)
        if key not in self._known:
            self._check(ref)
            self._known[key] = LoRARequest(f"{ref.policy}#{ref.digest}", len(self._known) + 1, ref.path)
        return self._known[key]

    def _check(self, ref: AdapterRef) -> None:
        folder = Path(ref.path)
        try:
            read_tensors(folder / ADAPTER_FILE, ref.digest, "numpy")
            lora = parse_peft_config(json.loads((folder / ADAPTER_CONFIG_FILE).read_text()))
        except (OSError, ValueError) as error:
            raise AdapterError(f"adapter {ref.policy} at {ref.path!r} cannot be read: {error}.", "Publish it again.") from error
        if lora.rank > self.max_rank:
            raise AdapterError(
                f"adapter {ref.policy} has rank {lora.rank}; vLLM was started for {self.max_rank}.", "Lower lora.rank."
            )


def served_rank(rank: int) -> int:
    """The smallest of vLLM's that holds `rank`. AdapterError above the largest."""
    found = next((served for served in RANKS if served >= rank), None)
    if found is None:
        raise AdapterError(f"lora.rank is {rank}, and vLLM serves at most {RANKS[-1]}.", "Lower it.")
    return found
