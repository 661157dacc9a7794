"""Bounds what drafting may lose, whatever the tokens are.

Every step earns the share `max_loss_share` of its time without drafts; drafting pays for the time it adds and is paid for the
tokens it saves. What is not there cannot be spent. So at every moment

    time with drafting - time without <= max_loss_share x time without + OPENING_STEPS steps

and over any stretch of steps, however well drafting did before, at most `CREDIT_STEPS` steps more than the share.
Times without drafts are those of the cost model; what drafting added is measured, and what it saved is told by `saved_time`.
"""

OPENING_STEPS = 0.35
CREDIT_STEPS = 2.0


class LossLedger:
    """`balance_s` is what drafting may spend now, in seconds."""

    def __init__(self, max_loss_share: float = 0.01) -> None:
        self.max_loss_share = max_loss_share
        self.balance_s = 0.0
        self._is_open = False

    def book(self, plain_s: float, extra_s: float = 0.0, saved_s: float = 0.0) -> None:
        """Take a step that takes `plain_s` without drafts, took `extra_s` more and saved `saved_s` of later steps."""
        if not self._is_open:
            self.balance_s, self._is_open = OPENING_STEPS * plain_s, True
        earned = self.max_loss_share * plain_s + saved_s - extra_s
        self.balance_s = min(self.balance_s + earned, max(CREDIT_STEPS * plain_s, self.balance_s))
