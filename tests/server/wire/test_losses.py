"""Losses and their settings."""

import pytest
from tinker.types import LossFnType

from plait.config.task import LossSettings
from plait.server.wire.errors import WireError
from plait.server.wire.losses import to_loss_settings
from tests.server.wire.sdk import call

LOSSES: list[LossFnType] = ["cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo", "stable_reinforce"]


@pytest.mark.parametrize("loss_fn", LOSSES)
def test_every_loss_of_the_sdk_is_served_with_its_defaults(loss_fn: str) -> None:
    assert to_loss_settings(call([], loss_fn)) == LossSettings(kind=loss_fn)


@pytest.mark.parametrize("loss_fn", ["ppo", "cispo", "gspo", "stable_reinforce"])
def test_bounds_are_taken(loss_fn: str) -> None:
    settings = to_loss_settings(call([], loss_fn, {"clip_low_threshold": 0.7, "clip_high_threshold": 1.5}))
    assert (settings.clip_low, settings.clip_high) == (0.7, 1.5)


def test_other_settings_are_taken() -> None:
    assert to_loss_settings(call([], "dro", {"beta": 0.1})).beta == 0.1
    assert to_loss_settings(call([], "stable_reinforce", {"kl_coeff": 0.02})).kl_coeff == 0.02


@pytest.mark.parametrize(
    ("loss_fn", "config", "field", "words"),
    [
        ("ppq", {}, "loss_fn", "Did you mean 'ppo'?"),
        ("zzzzz", {}, "loss_fn", "Known: cispo"),
        ("custom", {"loss_id": "l"}, "loss_fn", "client"),
        ("ppo", {"clip_low": 0.8}, "loss_fn_config.clip_low", "Did you mean 'clip_low_threshold'?"),
        ("ppo", {"beta": 0.8}, "loss_fn_config.beta", "no effect on loss 'ppo'"),
        ("cross_entropy", {"beta": 0.8}, "loss_fn_config.beta", "None is known"),
        ("dro", {"beta": "0.1"}, "loss_fn_config.beta", "must be a number, not '0.1'"),
        ("dro", {"beta": -1.0}, "loss_fn_config.beta", "greater than 0"),
        ("stable_reinforce", {"kl_coeff": -1.0}, "loss_fn_config.kl_coeff", "greater than or equal to 0"),
        ("gspo", {"clip_low_threshold": 2.0, "clip_high_threshold": 1.0}, "loss_fn_config", "above"),
    ],
)
def test_wrong_settings_are_named(loss_fn: str, config: dict, field: str, words: str) -> None:
    with pytest.raises(WireError) as caught:
        to_loss_settings(call([], loss_fn, config))
    assert caught.value.field == field
    assert words in str(caught.value)
