"""A curve as SVG, by hand: points, and the mean of the last few as a line."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT, MARGIN = 640, 320, 44
POINT, LINE, TEXT, GRID = "#9db7d5", "#1f5fa8", "#444", "#ddd"


def curve_svg(values: Sequence[float], num_averaged: int, title: str) -> str:
    """`values` by step, on a light ground. Raises ValueError without values."""
    low, high = min([0.0, *values]), max([0.1, *values])
    means = [sum(part) / len(part) for end in range(1, len(values) + 1) if (part := values[max(0, end - num_averaged) : end])]
    places, line = _places(values, low, high), _places(means, low, high)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{POINT}"/>' for x, y in places)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
    levels = [low + (high - low) * part / 4 for part in range(5)]
    grid = "".join(_level(level, _height(level, low, high)) for level in levels)
    note = f"steps 0 to {len(values) - 1}; line: mean of the last {num_averaged}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11"'
        f' fill="{TEXT}">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
        f'<text x="{MARGIN}" y="20" font-size="14">{escape(title)}</text>{grid}{dots}'
        f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="2"/>'
        f'<text x="{MARGIN}" y="{HEIGHT - 12}">{escape(note)}</text></svg>\n'
    )


def _places(values: Sequence[float], low: float, high: float) -> list[tuple[float, float]]:
    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    return [(MARGIN + index * step, _height(value, low, high)) for index, value in enumerate(values)]


def _height(value: float, low: float, high: float) -> float:
    return HEIGHT - MARGIN - (value - low) / (high - low) * (HEIGHT - 2 * MARGIN)


def _level(level: float, y: float) -> str:
    return (
        f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>'
        f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{level:.2f}</text>'
    )
