"""T(rows, tokens): how long the model takes for a step, from a profile made at start and corrected by the steps that run.

- The profile is a full grid of (rows, tokens per row) -> seconds; between its points it is linear, beyond its last ones it goes on
  with the last slope. Points that fall with more work are noise and are raised to the one before.
- The first draft token of a step may cost more than its share, as verifying is another way to compute and processors round up what
  they multiply: the profile may have a point (rows, `FIRST_DRAFT`) for it, below which no step with drafts goes.
- Two corrections, both exponential averages of observed over predicted: a *level* moved by steps without drafts, apart for 1, 2, up
  to 4, up to 8 rows and so on, as rows differ in adapters (where none has run yet that of all steps holds), and a *shape* for each
  number of tokens per row, relative to one token per row, moved by steps with drafts. So what drafts take is never taken for what a
  step would take without them; a machine that slows down meanwhile makes drafts look dear until a step without drafts tells.
- A step with drafts never takes less time than one without.
- Where a model pads its tokens to a multiple of `token_step`, a step takes what the padded ones take: the first draft token past a
  multiple pays for all up to the next.
- Several paths in a row cost more than their tokens. By what factor, the profile may say for some numbers of rows: (rows,
  `SEVERAL_PATHS`) is a step of `PATHS_WIDTH` tokens per row, in which each row has two paths. Steps with paths correct it, and
  nothing else.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

FIRST_DRAFT = 0
"""In a profile, in place of the tokens per row: one draft token in all rows together."""
SEVERAL_PATHS, PATHS_WIDTH = -1, 4
LEVEL_STEP = 0.1
SHAPE_STEP = 0.1
FIRST_JUMP = 1.35
"""The first observations weigh more, 1/2, 1/3, ... down to the steps above, and count as at most so many times more or less."""
MAX_JUMP = 2.0
"""An observation counts as at most this many times more or less than expected: a stalled step is not a slower model."""


def interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Piecewise linear through rising `xs`; constant before the first, the last slope (or proportional) after the last."""
    if x <= xs[0]:
        return ys[0]
    if len(xs) == 1:
        return ys[0] * x / xs[0]
    right = min(bisect_left(xs, x), len(xs) - 1)
    share = (x - xs[right - 1]) / (xs[right] - xs[right - 1])
    return ys[right - 1] + share * (ys[right] - ys[right - 1])


class TargetTime:
    """Seconds of a step, by the number of rows and of tokens in all of them."""

    def __init__(self, profile: Mapping[tuple[int, int], float], token_step: int = 1) -> None:
        paths_s = {rows: seconds for (rows, width), seconds in profile.items() if width == SEVERAL_PATHS}
        profile = {pair: seconds for pair, seconds in profile.items() if pair[1] != SEVERAL_PATHS}
        self._rows = sorted({rows for rows, _ in profile})
        self._widths = sorted({width for _, width in profile} - {FIRST_DRAFT})
        expected = {(rows, width) for rows in self._rows for width in self._widths}
        firsts = {(rows, FIRST_DRAFT) for rows in self._rows}
        if self._widths[:1] != [1] or set(profile) not in (expected, expected | firsts) or min(profile.values()) <= 0:
            raise ValueError(
                f"profile covers rows {self._rows} and tokens per row {self._widths} with {len(profile)} times. "
                "Give a positive time for every pair, with one token per row among them."
            )
        by_rows = [list(accumulate((profile[rows, width] for width in self._widths), max)) for rows in self._rows]
        self._table = list(accumulate(by_rows, lambda before, here: [max(pair) for pair in zip(before, here, strict=True)]))
        self._plain_times = [times[0] for times in self._table]
        self._first = [
            max(profile.get((rows, FIRST_DRAFT), 0.0), times[0]) for rows, times in zip(self._rows, self._table, strict=True)
        ]
        self._token_step = token_step
        self._levels: dict[int, _Level] = {}
        self._points = [self._padded_points(rows, times) for rows, times in zip(self._rows, self._table, strict=True)]
        self.level = 1.0
        self._shape = [1.0] * len(self._widths)
        self._num_seen = [0] * len(self._widths)
        """Steps that moved each shape, and the level."""
        self._curves: dict[int, list[tuple[float, int, float]]] = {}
        """Rows -> for each number of extra tokens: profiled seconds, and between which widths it lies and where."""
        self._paths_rows = sorted(paths_s) or [1]
        self._paths = [max(1.0, paths_s[n] / self._profiled(n, n * PATHS_WIDTH)) if paths_s else 1.0 for n in self._paths_rows]
        self._paths_level = 1.0

    def seconds(self, num_rows: int, num_tokens: int) -> float:
        """Return the expected time of a step of `num_tokens` tokens in `num_rows` rows; 0 without rows."""
        if not num_rows:
            return 0.0
        profiled, left, share = self._point(num_rows, max(num_tokens, num_rows))
        return self.level_of(num_rows) * max(profiled * self._between(left, share), self._plain(num_rows))

    def level_of(self, num_rows: int) -> float:
        """By how much more than the profile says steps of about so many rows take."""
        own = self._levels.get((num_rows - 1).bit_length())
        return own.value if own is not None else self.level

    def curve(self, num_rows: int, num_extra: int) -> list[float]:
        """Return the expected times with 0 to `num_extra` tokens more than one a row, as `seconds` but never falling."""
        points = self._curves.setdefault(num_rows, [])
        points += [self._point(num_rows, num_rows + extra) for extra in range(len(points), num_extra + 1)]
        level, least, found = self.level_of(num_rows), points[0][0], []
        for profiled, left, share in points[: num_extra + 1]:
            least = max(least, profiled * self._between(left, share))
            found.append(level * least)
        return found

    def paths_factor(self, num_rows: int) -> float:
        """By how much more than its tokens say a step takes in which a row has several paths; 1 or more."""
        x = min(max(num_rows, self._paths_rows[0]), self._paths_rows[-1])
        return max(1.0, interpolate(self._paths_rows, self._paths, x) * self._paths_level)

    def observe(self, num_rows: int, num_tokens: int, seconds: float, has_paths: bool = False) -> None:
        """Take the measured time of a step."""
        expected_s = self.seconds(num_rows, num_tokens)
        ratio = seconds / (expected_s * self.paths_factor(num_rows) if has_paths else expected_s)
        if has_paths:
            self._paths_level = max(self._paths_level * (1 + SHAPE_STEP * _error(ratio, MAX_JUMP)), 1 / MAX_JUMP)
        elif num_tokens > num_rows and len(self._widths) > 1:
            width = self._padded(num_tokens) / num_rows
            nearest = min(range(1, len(self._widths)), key=lambda i: abs(self._widths[i] - width))
            self._num_seen[nearest] += 1
            self._shape[nearest] *= 1 + _weighed(ratio, self._num_seen[nearest], SHAPE_STEP)
        else:
            own = self._levels.setdefault((num_rows - 1).bit_length(), _Level(self.level))
            own.num_seen += 1
            self._num_seen[0] += 1
            self.level *= 1 + _weighed(ratio * own.value / self.level, self._num_seen[0], LEVEL_STEP)
            own.value *= 1 + _weighed(ratio, own.num_seen, LEVEL_STEP)

    def _point(self, num_rows: int, num_tokens: int) -> tuple[float, int, float]:
        width = self._padded(num_tokens) / num_rows if num_tokens > num_rows else 1.0
        return self._profiled(num_rows, num_tokens), *self._place(width)

    def _padded(self, num_tokens: int) -> int:
        return -(-num_tokens // self._token_step) * self._token_step

    def _padded_points(self, num_rows: int, times: Sequence[float]) -> tuple[list[float], list[float]]:
        """The tokens per row that the model takes for those of the profile, and the seconds of each."""
        found: dict[float, float] = {}
        for width, seconds in zip(self._widths, times, strict=True):
            found[self._padded(num_rows * width) / num_rows] = seconds  # The last of equal ones takes the longest.
        return list(found), list(found.values())

    def _place(self, width: float) -> tuple[int, float]:
        """Which shapes hold at a width: the one to its left, and how far it is on the way to the next. With any draft: not the
        first, which is that of a step without."""
        last = len(self._widths) - 1
        place = interpolate(self._widths, range(last + 1), min(width, self._widths[-1]))
        place = max(place, 1.0) if width > 1 and last else place
        return int(place), place - int(place)

    def _between(self, left: int, share: float) -> float:
        here = self._shape[left]
        return here + share * (self._shape[left + 1] - here) if share else here

    def _plain(self, num_rows: int) -> float:
        return interpolate(self._rows, self._plain_times, self._padded(num_rows) if num_rows > self._token_step else num_rows)

    def _profiled(self, num_rows: int, num_tokens: int) -> float:
        plain_s = self._plain(num_rows)
        if num_tokens <= num_rows:
            return plain_s
        padded = self._padded(num_tokens)
        found = interpolate(self._rows, [interpolate(*points, padded / num_rows) for points in self._points], num_rows)
        is_further = padded > self._padded(num_rows)
        return max(found, plain_s, interpolate(self._rows, self._first, num_rows) if is_further else 0.0)


@dataclass(slots=True)
class _Level:
    value: float
    num_seen: int = 0


def _weighed(ratio: float, num_seen: int, step: float) -> float:
    """The share by which the latest of so many observations moves a correction."""
    weight = 1 / (1 + num_seen)
    return weight * _error(ratio, FIRST_JUMP) if weight > step else step * _error(ratio, MAX_JUMP)


def _error(ratio: float, most: float) -> float:
    return min(max(ratio, 1 / most), most) - 1
