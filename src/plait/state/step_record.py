"""The record of one optimizer step, as it lies in `record.json` beside the weights."""

import msgspec

from plait.observe.events import StepCommitted
from plait.types.policy import Training


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a resumed run needs besides the tensors.

    Policy version `step` of `task` is the result of `step` optimizer steps. `data_cursor` is the index of the next example to
    ask. Digests are hex and filled in by `records.write_record`.
    """

    task: str
    step: int
    phase: str
    """"warm_start" or "rl"."""
    data_cursor: int
    seed: int
    base_digest: str
    """Of the frozen base; resuming on another base is an error."""
    plait_version: str
    event: StepCommitted | None = None
    """What the event log is told of this step; None only of step 0, what training began from."""
    training: Training = "lora"
    """What was trained, and so what lies beside the record: an adapter, or the whole model."""
    start_digest: str = ""
    """Of step 0: digest of the adapter that training began from, as it was stored; empty: pristine."""
    adapter_digest: str = ""
    """Of the trained weights, whichever they are."""
    adapter_config_digest: str = ""
    optimizer_digest: str = ""
