"""How long drafting for a step takes: a little for each row, more where several paths are wanted, and for each token to be learnt.

The proportions are those measured in pure Python (`local_drafter`); how fast this machine is, the steps that are drafted tell.
"""

ROW_S, PATHS_ROW_S, TOKEN_S = 2e-5, 1.5e-4, 6e-6
"""Of a row with one path, of a row with several, of a token learnt."""
LEVEL_STEP = 0.1
"""Weight of the newest measurement."""
MAX_JUMP = 4.0
"""One measurement counts as at most this many times more than expected."""


class DraftingTime:
    """`seconds` is what the drafting expected last will take."""

    def __init__(self) -> None:
        self._level = 1.0
        self._work_s = 0.0

    def expect(self, num_rows: int, num_paths: int, num_unlearnt: int) -> None:
        """The step to come: its rows, the paths of each, and tokens that must be learnt first."""
        self._work_s = num_rows * (PATHS_ROW_S if num_paths > 1 else ROW_S) + num_unlearnt * TOKEN_S

    @property
    def seconds(self) -> float:
        return self._level * self._work_s

    def observe(self, seconds: float) -> None:
        """Take what drafting for the step expected last took."""
        if self._work_s:
            error = min(seconds / self.seconds, MAX_JUMP) - 1
            self._level *= 1 + LEVEL_STEP * error
