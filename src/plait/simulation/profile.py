"""What calls of a model took on a machine, and the costs that fit them; `plait profile` writes one, as JSON.

Costs are sums of simple terms with coefficients of at least 0, by least squares of relative errors: so they never fall with more
work. Each fit's error is that on points that it was not told: a third at a time, the smallest and the largest work apart.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from plait.types.errors import ConfigError

ROWS_KNOTS = (2, 4, 8, 16, 32, 64)
TOKENS_KNOTS = (128, 512, 2048)


class Point(msgspec.Struct, frozen=True):
    """`num_rows` and `num_tokens` are those of a call: of a decode step the tokens of all contexts, else those computed."""

    num_tokens: Annotated[int, Meta(ge=1)]
    seconds: Annotated[float, Meta(gt=0)]
    num_rows: Annotated[int, Meta(ge=1)] = 1


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds measured; what was not is empty or 0."""

    model: str
    machine: str
    decode: tuple[Point, ...]
    prefill: tuple[Point, ...]
    train: tuple[Point, ...] = ()
    resume: tuple[Point, ...] = ()
    """The end of a chunk and the start of the next one of its generation, by the tokens of its context."""
    verify_token_s: Annotated[float, Meta(ge=0)] = 0.0
    """That each further token of a row adds to a step."""
    optimizer_s: Annotated[float, Meta(ge=0)] = 0.0
    publish_s: Annotated[float, Meta(ge=0)] = 0.0
    load_bytes_per_s: Annotated[float, Meta(gt=0)] = 10e9
    fetch_tokens_per_s: Annotated[float, Meta(gt=0)] = 1e6

    def json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    def write(self, path: Path) -> None:
        path.write_bytes(self.json())


def read_profile(path: Path) -> Profile:
    """ConfigError if it is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Profile)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.", "Write a profile with `plait profile`.") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is no profile: {error}.", "Write one with `plait profile`.") from error


class FitError(msgspec.Struct, frozen=True):
    """Relative errors on points that a fit was not told."""

    median: float
    worst: float
    num_points: int


def decode_terms(point: Point) -> tuple[float, ...]:
    """Up to each knot a row may cost more, or less, than after it."""
    rows = point.num_rows
    terms = [(float(min(rows, knot)), float(max(0, rows - knot))) for knot in ROWS_KNOTS]
    return 1.0, float(rows), float(point.num_tokens), *(value for pair in terms for value in pair)


def token_terms(point: Point) -> tuple[float, ...]:
    tokens = point.num_tokens
    terms = [(float(min(tokens, knot)), float(max(0, tokens - knot))) for knot in TOKENS_KNOTS]
    return 1.0, float(tokens), float(tokens) ** 2, *(value for pair in terms for value in pair)


Terms = Callable[[Point], tuple[float, ...]]


class Fit:
    """Seconds as a sum of terms."""

    def __init__(self, points: Sequence[Point], terms: Terms) -> None:
        self._terms = terms
        seconds_P = np.array([point.seconds for point in points])
        relative_PT = np.array([terms(point) for point in points]) / seconds_P[:, None]
        scale_T = np.maximum(relative_PT.max(axis=0), 1e-30)
        self._coefficients = tuple(float(x) for x in non_negative(relative_PT / scale_T) / scale_T)

    def seconds(self, point: Point) -> float:
        return sum(c * term for c, term in zip(self._coefficients, self._terms(point), strict=True) if c)


def non_negative(terms_PT: np.ndarray, num_rounds: int = 4000) -> np.ndarray:
    """Coefficients of at least 0 whose sums are as near 1 as can be: coordinate descent."""
    gram_TT, towards_T = terms_PT.T @ terms_PT, terms_PT.sum(axis=0)
    found_T = np.zeros(len(towards_T))
    for _ in range(num_rounds):
        largest = 0.0
        for i, diagonal in enumerate(np.diag(gram_TT)):
            step = max(-found_T[i], (towards_T[i] - gram_TT[i] @ found_T) / max(diagonal, 1e-30))
            found_T[i] += step
            largest = max(largest, abs(step))
        if largest < 1e-9:
            break
    return found_T


def held_out_error(points: Sequence[Point], terms: Terms) -> FitError:
    """Of fits to two thirds of the points on the others, in three ways; each point is left out once."""
    ordered = sorted(points, key=lambda point: (point.num_rows, point.num_tokens))
    errors: list[float] = []
    for fold in range(3):
        held = ordered[1 + fold : -1 : 3]
        fit = Fit([point for point in ordered if point not in held], terms)
        errors += [abs(fit.seconds(point) - point.seconds) / point.seconds for point in held]
    return FitError(median(errors), max(errors), len(errors)) if errors else FitError(0.0, 0.0, 0)


def errors_of(profile: Profile) -> Mapping[str, FitError]:
    """By what was measured."""
    kinds: dict[str, tuple[Sequence[Point], Terms]] = {
        "decode": (profile.decode, decode_terms), "prefill": (profile.prefill, token_terms),
        "train": (profile.train, token_terms), "ends of chunks": (profile.resume, token_terms),
    }  # fmt: skip
    return {name: held_out_error(points, terms) for name, (points, terms) in kinds.items() if points}
