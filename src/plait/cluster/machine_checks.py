"""Whether the machine at hand is what a worker's settings ask for."""

from collections.abc import Callable

import torch

from plait.models.invariance import InvarianceReport
from plait.types.errors import ConfigError


def pick_device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("model.device is 'cuda', but torch sees no CUDA device.", "Use 'auto' or 'cpu', or see `plait doctor`.")
    return name


def check_invariance(mode: str, test: Callable[[], InvarianceReport]) -> InvarianceReport:
    """Run the self-test unless it is switched off; fail where it is required and not passed."""
    if mode == "off":
        return InvarianceReport(False, "switched off")
    report = test()
    if mode == "require" and not report.granted:
        raise ConfigError(
            f"engine.batch_invariant is 'require', but this machine does not pass the self-test: {report.detail}.",
            "Use 'auto', or bfloat16 on a CPU that passes (`plait doctor`).",
        )
    return report
