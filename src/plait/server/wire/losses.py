"""The losses that a forward_backward request can name: which inputs and which settings each has.

Names, inputs and settings are those of the Tinker API (thinkingmachines.ai, docs on losses). All losses are sums.
"""

from typing import get_args

from pydantic import ValidationError

from plait.config.task import LossSettings
from plait.server.wire.errors import WireError, nearest_of
from plait.server.wire.forward_backward import ForwardBackwardCall

CLIPPING_LOSSES = ("ppo", "cispo", "gspo", "stable_reinforce")
_POLICY_GRADIENT = ("logprobs", "advantages")
REQUIRED_INPUTS: dict[str, tuple[str, ...]] = {
    "cross_entropy": ("weights",),
    "importance_sampling": _POLICY_GRADIENT,
    "ppo": _POLICY_GRADIENT,
    "cispo": _POLICY_GRADIENT,
    "dro": _POLICY_GRADIENT,
    "gspo": _POLICY_GRADIENT,
    "stable_reinforce": _POLICY_GRADIENT,
}
"""Besides `target_tokens`, which every loss needs."""
_CLIP = {"clip_low_threshold": "clip_low", "clip_high_threshold": "clip_high"}
_SETTINGS: dict[str, dict[str, str]] = {
    **dict.fromkeys(CLIPPING_LOSSES, _CLIP),
    "dro": {"beta": "beta"},
    "stable_reinforce": _CLIP | {"kl_coeff": "kl_coeff"},
}
"""Keys of loss_fn_config, and our names for them."""


def check_loss(loss_fn: str) -> None:
    """Raises WireError unless `loss_fn` is a loss that is served."""
    if loss_fn == "custom":
        raise WireError("'custom' is not run on the server.", "Let the SDK run it on the client.", field="loss_fn")
    served = REQUIRED_INPUTS.keys() & _kinds()
    if loss_fn not in served:
        raise WireError(f"{loss_fn!r} is not served.", nearest_of(loss_fn, served), field="loss_fn")


def to_loss_settings(call: ForwardBackwardCall) -> LossSettings:
    """The loss and its settings. Raises WireError if either is unknown, of the wrong type or out of range."""
    check_loss(call.loss_fn)
    names = _SETTINGS.get(call.loss_fn, {})
    values: dict[str, float] = {}
    for key, value in call.config.items():
        field = f"loss_fn_config.{key}"
        if key not in names:
            raise WireError(f"has no effect on loss {call.loss_fn!r}.", nearest_of(key, names.keys()), field=field)
        if isinstance(value, str):
            raise WireError(f"must be a number, not {value!r}.", field=field)
        values[names[key]] = value
    if values.get("clip_low", 0.0) > values.get("clip_high", float("inf")):
        message = f"clip_low_threshold {values['clip_low']} is above clip_high_threshold {values['clip_high']}."
        raise WireError(message, "They are absolute bounds of the ratio, such as 0.8 and 1.2.", field="loss_fn_config")
    return _settings(call.loss_fn, values, {ours: theirs for theirs, ours in names.items()})


def _settings(loss_fn: str, values: dict[str, float], wire_names: dict[str, str]) -> LossSettings:
    try:
        return LossSettings.model_validate({"kind": loss_fn, **values})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][-1]) if first["loc"] else ""
        raise WireError(f"{first['msg']}.", field=f"loss_fn_config.{wire_names.get(name, name)}") from error


def _kinds() -> frozenset[str]:
    return frozenset(get_args(LossSettings.model_fields["kind"].annotation))
