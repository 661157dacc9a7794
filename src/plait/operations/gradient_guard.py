"""Keeps an optimizer step from taking gradients that are not all there. Pure.

- A forward_backward that failed poisons what accumulates: the next optim_step fails, and the gradients are discarded.
- Then it is over: the forward_backward calls after it accumulate anew.
- Forward passes that failed have no gradient and are not told to the guard.
"""

from plait.operations.future_state import FailureCategory
from plait.types.errors import PlaitError


class PoisonedGradients(PlaitError):
    """An optim_step whose gradients lack those of a call that failed."""

    category = FailureCategory.USER


class GradientGuard:
    """Of one model. Ask it when all calls before an optim_step have ended."""

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self._failed: list[tuple[int, str]] = []

    @property
    def waiting(self) -> tuple[int, ...]:
        """The forward_backward calls whose gradients wait, in order: they run again if the worker is lost."""
        return tuple(self._waiting)

    def forward_backward_done(self, seq_id: int) -> None:
        self._waiting.append(seq_id)

    def forward_backward_failed(self, seq_id: int, error: str) -> None:
        self._failed.append((seq_id, error))

    def check_optim_step(self, seq_id: int) -> None:
        """Raise PoisonedGradients if the step must fail: discard the model's gradients then; the guard has forgotten them."""
        if not self._failed:
            return
        failed_seq_id, error = self._failed[0]
        others = f" (and {len(self._failed) - 1} more)" if len(self._failed) > 1 else ""
        self.clear()
        raise PoisonedGradients(
            f"optim_step with seq_id {seq_id}: forward_backward with seq_id {failed_seq_id}{others} failed, so its gradients "
            f"would be missing. Its error was: {error}",
            "All gradients since the last step were discarded: send the forward_backward calls again, then the optim_step.",
        )

    def clear(self) -> None:
        """The gradients are used or gone: after an optim_step, a load, or a discard."""
        self._waiting.clear()
        self._failed.clear()
