"""Figures as a person reads them, as claims, and as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common import headline
from benchmarks.drafting_model import ADAPTIVE

Row = Mapping[str, Any]
PAPER_TOKENS_PER_STEP = 2.85
"""With 15 siblings; Seer, arXiv 2511.14617."""
NEVER_BELOW = 0.97
MAX_LOSS = 0.03
GAIN_GOAL = 1.2
SMALL_BATCHES = (1, 2, 4, 8)


def print_acceptance(console: Console, rows: Sequence[Row]) -> None:
    siblings = sorted({row["siblings"] for row in rows})
    table = Table(title="Tokens a verify step, by siblings known", title_justify="left")
    for name in ("answers", "task", "tokens", "paths", *map(str, siblings)):
        table.add_column(name, justify="left" if name in ("answers", "task") else "right")
    for key in dict.fromkeys((row["stage"], row["task"], row["paths"]) for row in rows):
        mine = {row["siblings"]: row for row in rows if (row["stage"], row["task"], row["paths"]) == key}
        tokens = next(iter(mine.values()))["tokens"]
        table.add_row(key[0], key[1], str(tokens), str(key[2]), *(f"{mine[count]['tokens_per_step']:.2f}" for count in siblings))
    console.print(table)


def print_speed(console: Console, rows: Sequence[Row]) -> None:
    """ "a draft": tokens that a row draws in a step where it has a draft; "paths": share of these in which it has several."""
    table = Table(title="Tokens a second, one thread", title_justify="left")
    for name in (
        "dtype",
        "answers",
        "batch",
        "drafting",
        "tokens",
        "tokens/s",
        "CPU s",
        "gain",
        "accepted",
        "tokens a step",
        "a draft",
        "paths",
        "same",
    ):
        table.add_column(name, justify="left" if name in ("dtype", "answers", "drafting", "same") else "right")
    for row in rows:
        accepted = f"{row['accepted'] / row['proposed']:.0%}" if row["proposed"] else ""
        table.add_row(
            row["dtype"], row["stage"], str(row["batch"]), row["system"], str(row["tokens"]), f"{row['tokens_per_s']:.1f}",
            f"{row['cpu_s']:.2f}", f"{row['gain']:.2f}x", accepted, f"{row['tokens_per_row_step']:.2f}",
            f"{row['tokens_per_verify_step']:.2f}", f"{row['branched']:.0%}" if row["branched"] else "",
            "yes" if row["same_outputs"] else "NO",
        )  # fmt: skip
    console.print(table)


def print_adversarial(console: Console, rows: Sequence[Row]) -> None:
    table = Table(title="Drafts that never hold: CPU seconds with drafting over without", title_justify="left")
    for name in ("model", "dtype", "batch", "pairs", "tokens", "CPU s", "ratio", "quartiles", "proposed", "accepted", "same"):
        table.add_column(name, justify="left" if name in ("model", "dtype", "same") else "right")
    for row in rows:
        low, high = row["ratio_quartiles"]
        table.add_row(
            row["model"], row["dtype"], str(row["batch"]), str(row["pairs"]), str(row["tokens"]), f"{row['plain_cpu_s']:.2f}",
            f"{row['ratio']:.3f}", f"{low:.3f}..{high:.3f}", str(row["proposed"]), str(row["accepted"]),
            "yes" if row["same_outputs"] else "NO",
        )  # fmt: skip
    console.print(table)


def headlines_of(acceptance: Sequence[Row], speed: Sequence[Row], adversarial: Sequence[Row]) -> dict[str, Any]:
    found = {f"tokens_per_step_{paths}_path": _acceptance(acceptance, paths) for paths in (1, 4)}
    adaptive = [row for row in speed if row["system"] == ADAPTIVE]
    small = [row for row in adaptive if row["batch"] in SMALL_BATCHES]
    trained = [row for row in small if row["stage"] == "trained"]
    found["gain_batch_1_to_8"] = _gain(trained)
    found["adaptive_never_below"] = _least(adaptive)
    for row in adversarial:
        found[f"adversarial_{row['model']}"] = _loss(row)
    same = [bool(row["same_outputs"]) for row in [*speed, *adversarial]]
    found["same_outputs"] = headline(sum(same) / len(same) if same else None, 1.0, "share", f"of {len(same)} rows")
    return found


def _loss(row: Row) -> dict[str, Any]:
    low, high = row["ratio_quartiles"]
    note = f"loss of CPU seconds {row['ratio'] - 1:.1%} ({low - 1:.1%}..{high - 1:.1%}), {row['pairs']} pairs; goal {MAX_LOSS:.0%}"
    return headline(2 - row["ratio"], 1 - MAX_LOSS, "of the speed", note)


def _acceptance(rows: Sequence[Row], paths: int) -> dict[str, Any]:
    most = max((row["siblings"] for row in rows), default=0)
    mine = {row["stage"]: row for row in rows if (row["siblings"], row["paths"], row["task"]) == (most, paths, "all")}
    if "trained" not in mine:
        return headline(None, PAPER_TOKENS_PER_STEP, "tokens", "there are no trained answers")
    note = f"{most} siblings, after training; base {mine['base']['tokens_per_step']:.2f}" if "base" in mine else f"{most} siblings"
    return headline(mine["trained"]["tokens_per_step"], PAPER_TOKENS_PER_STEP, "tokens", note)


def _gain(rows: Sequence[Row]) -> dict[str, Any]:
    """The geometric mean would hide the worst: the least counts, and all are told."""
    if not rows:
        return headline(None, GAIN_GOAL, "x", "no small batch was run")
    told = ", ".join(f"{row['dtype']} {row['batch']}: {row['gain']:.2f}x" for row in rows)
    return headline(min(row["gain"] for row in rows), GAIN_GOAL, "x", f"the least of {told}")


def _least(rows: Sequence[Row]) -> dict[str, Any]:
    if not rows:
        return headline(None, NEVER_BELOW, "x", "nothing was run")
    worst = min(rows, key=lambda row: float(row["gain"]))
    return headline(worst["gain"], NEVER_BELOW, "x", f"{worst['dtype']}, {worst['stage']}, batch {worst['batch']}")


def draw_figure(path: Path, acceptance: Sequence[Row], speed: Sequence[Row]) -> None:
    """Tokens a verify step by siblings, and gain by batch."""
    from matplotlib.figure import Figure

    settings = list(dict.fromkeys((row["dtype"], row["stage"]) for row in speed))
    figure = Figure(figsize=(4.2 * (1 + len(settings)), 3.6), layout="constrained")
    panels = figure.subplots(1, 1 + len(settings), squeeze=False)[0]
    _draw_acceptance(panels[0], acceptance)
    for panel, key in zip(panels[1:], settings, strict=True):
        mine = [row for row in speed if (row["dtype"], row["stage"]) == key]
        for system in dict.fromkeys(row["system"] for row in mine):
            points = [(row["batch"], row["gain"]) for row in mine if row["system"] == system]
            panel.plot(*zip(*points, strict=True), marker="o", label=system)
        panel.set(title=f"{key[0]}, {key[1]}", xlabel="batch", ylabel="speed, relative to no drafting", xscale="log")
        panel.set_xticks([row["batch"] for row in mine], [str(row["batch"]) for row in mine])
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    figure.savefig(path, dpi=110)


def _draw_acceptance(panel: Any, rows: Sequence[Row]) -> None:
    for key in dict.fromkeys((row["stage"], row["paths"]) for row in rows):
        points = [
            (row["siblings"], row["tokens_per_step"])
            for row in rows
            if (row["stage"], row["paths"]) == key and row["task"] == "all"
        ]
        panel.plot(*zip(*points, strict=True), marker="o", label=f"{key[0]}, {key[1]} path{'s' if key[1] > 1 else ''}")
    panel.axhline(PAPER_TOKENS_PER_STEP, color="grey", linestyle=":", label="paper, 15 siblings")
    panel.set(title="Tokens a verify step", xlabel="siblings known")
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small")
