"""What controller and workers say of models that a client drives call by call.

- Calls of one model run in the order in which they are sent; calls of different models take turns slice by slice, and tenants share
  the slices by weight.
- Every call is answered once, by CallDone or CallFailed with its `seq_id`; OpenModel by ModelOpened or CallFailed with `OPENING`.
- A failed call changes nothing, except that an optimizer step or a load that fails once begun (gradients are not finite, the disk
  is full) has used up the gradients that waited. A forward_backward that failed leaves the gradients of others as they were.
- Arrays travel as little-endian float32 or int32 bytes.
"""

import msgspec

from plait.types.datum import Datum
from plait.types.lora import LoraConfig
from plait.types.policy import AdapterRef, PolicyVersion, Training

OPENING = -1
"""In place of a seq_id: opening the model."""

METRIC_REDUCTIONS = {
    "loss": "sum",
    "num_tokens": "sum",
    "num_clipped": "sum",
    "ratio_mean": "mean",
    "logprob_gap_max": "max",
    "kl_to_base": "mean",
    "grad_norm": "max",
    "learning_rate": "max",
}
"""All metrics of CallDone, and how those of several calls become one. What was not measured is absent.

`num_tokens` counts targets. `ratio_mean` and `logprob_gap_max` compare the trainer's with the given log-probabilities where tokens
were sampled; of forward and backward calls. `grad_norm` (before clipping) and `learning_rate` are an optimizer step's.
"""


class OpenModel(msgspec.Struct, frozen=True, tag="open_model"):
    """Bring a model onto the device: its latest record in `folder`; without one `source_folder`'s tensors or a pristine adapter.

    Waiting gradients are no part of a record: the caller runs the forward_backward calls since again.
    """

    model_id: str
    tenant: str
    lora: LoraConfig
    folder: str
    source_folder: str = ""
    """A checkpoint (as SaveModel writes it) whose copy becomes version 0; empty: pristine from the seed."""
    with_optimizer: bool = True
    """Take the moments of `source_folder` too."""
    training: Training = "lora"
    """"full": all weights are trained, and `lora` has no effect."""


class ForwardBackward(msgspec.Struct, frozen=True, tag="forward_backward"):
    model_id: str
    seq_id: int
    datums: tuple[Datum, ...]
    loss_json: str
    """`config.task.LossSettings`."""
    forward_only: bool = False
    """Log-probabilities and loss, and no gradient."""


class OptimStep(msgspec.Struct, frozen=True, tag="optim_step"):
    """One AdamW step with the gradients that wait; without any the version advances and nothing else changes."""

    model_id: str
    seq_id: int
    optimizer_json: str
    """`config.task.OptimizerSettings`."""
    learning_rate: float | None = None
    """Holds in place of the settings'; may be 0."""


class SaveModel(msgspec.Struct, frozen=True, tag="save_model"):
    """Put the latest version's files at `folder`, in place of what is there: in PEFT format, or a model's; and `with_optimizer` the
    moments."""

    model_id: str
    seq_id: int
    folder: str
    with_optimizer: bool


class LoadModel(msgspec.Struct, frozen=True, tag="load_model"):
    """Replace weights (and moments, else they start anew) by those of `source_folder`; a new version. Waiting gradients go."""

    model_id: str
    seq_id: int
    source_folder: str
    with_optimizer: bool


class DiscardGradients(msgspec.Struct, frozen=True, tag="discard_gradients"):
    model_id: str


class CloseModel(msgspec.Struct, frozen=True, tag="close_model"):
    """Take the model off the device, which AdapterClosed answers. Calls of it that have not run are dropped without an answer."""

    model_id: str


class ScorePrompt(msgspec.Struct, frozen=True, tag="score_prompt"):
    """To the rollout worker: log-probabilities of given tokens, at `temperature` (0 stands for 1), under a policy.

    Answered once, by PromptScored; one that has not begun when CancelRequests names it, by an error.
    """

    request_id: str
    policy: PolicyVersion
    tokens: tuple[int, ...]
    adapter: AdapterRef | None = None
    temperature: float = 1.0
    first_position: int = 1
    """Positions before it are not scored."""
    top_k: int = 0
    """So many most likely tokens at each position too."""
    num_alternatives: int = 0
    """So many tokens drawn at each position, independently, with `seed`."""
    seed: int = 0
    num_targets: int = 0
    """K, of `targets`."""
    targets: bytes = b""
    """int32 [L - 1, K]: cell [i, j] is scored at position i + 1; -1: nothing."""


ModelMessage = OpenModel | ForwardBackward | OptimStep | SaveModel | LoadModel | DiscardGradients | CloseModel


class ModelOpened(msgspec.Struct, frozen=True, tag="model_opened"):
    model_id: str
    ref: AdapterRef
    """The latest version."""
    seq_id: int
    """Of the call that made it; 0: it is as it was created."""
    damage: tuple[str, ...] = ()


class CallDone(msgspec.Struct, frozen=True, tag="call_done"):
    model_id: str
    seq_id: int
    ref: AdapterRef
    """The version after the call; of SaveModel, `path` is the new folder."""
    logprobs: tuple[bytes, ...] = ()
    """Of each datum's targets, float32 [T]; of ForwardBackward."""
    metrics: dict[str, float] = {}
    num_tokens: int = 0
    device_s: float = 0.0
    longest_wait_slices: int = 0
    """Most slices of other tenants that ran while its tenant waited for one of the call's."""
    size_bytes: int = 0
    """Of SaveModel's folder."""


class CallFailed(msgspec.Struct, frozen=True, tag="call_failed"):
    model_id: str
    seq_id: int
    error: str
    is_user_error: bool
    """The input is at fault, not the service."""


class PromptScored(msgspec.Struct, frozen=True, tag="prompt_scored"):
    request_id: str
    logprobs: bytes = b""
    """float32 [L], NaN where nothing was scored."""
    top_ids: bytes = b""
    """int32 [L, top_k]; id 0 and log-probability -99999 where nothing was scored."""
    top_logprobs: bytes = b""
    target_logprobs: bytes = b""
    """float32 [L - 1, K], NaN where nothing was asked."""
    alternative_ids: bytes = b""
    """int32 [L, num_alternatives]; where nothing was scored as in `top_ids`."""
    alternative_logprobs: bytes = b""
    device_s: float = 0.0
    error: str = ""
    is_user_error: bool = False
