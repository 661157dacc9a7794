"""Write docs/results.md from benchmarks/results/simulation-*.json.

`python docs/make_results.py`; with `--check` nothing is written, and the exit code is 1 if the page is out of date.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("results.md")
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
Row = Mapping[str, Any]

TITLES = {
    "marlaas": "MARLaaS: 1 to 32 tasks on 64 devices",
    "seer-moonlight": "Seer: Moonlight on 32 devices",
    "seer-qwen2vl": "Seer: Qwen2-VL-72B on 128 devices",
    "seer-k2": "Seer: Kimi-K2 on 256 devices",
    "plexrl-2048": "PlexRL: jobs on 2048 devices",
}
HEAD = """# Results of simulations

What Plait's own schedulers do on clusters that nobody here owns, beside what three papers measured on theirs: see
[MARLaaS](https://arxiv.org/abs/2605.08527), [Seer](https://arxiv.org/abs/2511.14617), [PlexRL](https://arxiv.org/abs/2605.20863).
Costs are rooflines of public specifications, so ratios mean more than seconds. This page is written by `docs/make_results.py` from
`benchmarks/results/simulation-*.json`."""
STRANDS = """## What each strand adds on top of the others

*Sharing*: tasks share one base's devices. *Divided*: rollouts in chunks, scheduled in context, drafted from siblings.
*Multiplexing*: jobs share worker groups, call by call. Device-hours are those that worker groups hold, for each step of a task; the
last column compares with none of the three."""
SPEED = """One core; memory is what a simulation adds at its peak. An *event* is the start or the end of a function call or of a
chunk, or a decode step of an engine. What nobody can get in between of is one event on the clock, with the same result: calls to
the last bit, decode steps at costs that grow evenly between two changes of a batch."""
FULL = "python -m benchmarks.simulation --part "
KNOWN = {True: "yes", False: "-"}


def main() -> None:
    page = make_page(read_results())
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page else f"{PAGE} is out of date: run {__file__}")
    PAGE.write_text(page, encoding="utf-8")


def read_results() -> dict[str, dict[str, Any]]:
    """By part."""
    files = sorted(RESULTS.glob("simulation-*.json"))
    return {file.stem.removeprefix("simulation-"): json.loads(file.read_text(encoding="utf-8")) for file in files}


def make_page(results: Mapping[str, Mapping[str, Any]]) -> str:
    parts = [HEAD]
    if "strands" in results:
        parts.append("\n\n".join([STRANDS, *_strands(results["strands"])]))
    parts += ["\n\n".join([f"## {title}", *_paper(name, results[name])]) for name, title in TITLES.items() if name in results]
    if "validation" in results:
        parts.append("\n\n".join(["## Against this machine's measurements", *_validation(results["validation"])]))
    if "speed" in results:
        parts.append("\n\n".join(["## Speed of the simulator", *_speed(results["speed"])]))
    return "\n\n".join(parts) + "\n"


def _strands(found: Mapping[str, Any]) -> Iterator[str]:
    rows = of(found, "strands")
    yield table(
        ("sharing", "divided", "multiplexing", "device-hours a step", "held devices busy", "slowdown", "times as much"),
        [
            (KNOWN[row["sharing"]], KNOWN[row["seer"]], KNOWN[row["multiplexing"]], f"{row['device_hours_per_step']:.3f}",
             percent(row["busy_share"]), f"{row['slowdown']:.2f}", f"{row['gain']:.2f}x")
            for row in rows
        ],
    )  # fmt: skip
    best = max(rows, key=lambda row: row["gain"])
    chosen = [name for key, name in STRAND_NAMES.items() if best[key]]
    yield f"The best is {' + '.join(chosen) or 'none of them'}: {best['gain']:.2f}x. What a strand multiplies the rest by:"
    yield table(("strand", "alone", "on top of both others"), [_added(rows, key, name) for key, name in STRAND_NAMES.items()])
    yield "\n".join(f"- {row['text']}" for row in of(found, "assumption"))
    if under := of(found, "strands_under"):
        yield "How much of it depends on what was assumed; of each strand alone, then on top of both others:"
        yield table(("assumed instead", *STRAND_NAMES.values(), "all three", "the best"), [_under(row) for row in under])
    yield f"`python -m benchmarks.simulation {_quick(found)}--part strands`"


STRAND_NAMES = {
    "sharing": "multi-task sharing", "seer": "divided rollout, context, drafts", "multiplexing": "function-level multiplexing",
}  # fmt: skip


def _under(row: Row) -> tuple[str, ...]:
    added = (f"{row[f'{key}_alone']:.2f}x, {row[f'{key}_on_top']:.2f}x" for key in STRAND_NAMES)
    return row["assumption"], *added, f"{row['all']:.2f}x", f"{row['best']:.2f}x"


def _added(rows: Sequence[Row], key: str, name: str) -> tuple[str, str, str]:
    """What a strand multiplies the throughput of none, and of both others, by."""
    gains = {frozenset(strand for strand in STRAND_NAMES if row[strand]): row["gain"] for row in rows}
    every = frozenset(STRAND_NAMES)
    return name, f"{gains[frozenset([key])] / gains[frozenset()]:.2f}x", f"{gains[every] / gains[every - {key}]:.2f}x"


def _paper(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    if _quick(found):
        yield "On a cluster several times smaller, with the same load on each engine."
    rows = [(row["what"], _range(row), number(row.get("ours")), _difference(row)) for row in of(found, "paper")]
    yield table(("", "paper", "simulated", "difference"), rows)
    yield "Assumed, where the paper leaves it open:"
    yield "\n".join(f"- {row['text']}" for row in of(found, "assumption"))
    changed = of(found, "sensitivity")
    if changed:
        first = changed[0]
        yield f"How the headline ({first['figure']} of {first['system']} over {first['over']}) depends on what was assumed:"
        yield table(("assumed instead", "ratio"), [(row["assumption"], number(row["value"])) for row in changed])
    if grid := of(found, "grid"):
        yield folded(
            "By model and number of tasks",
            ("model", "tasks", "system", "steps an hour", "time to first step", "devices busy"),
            [(r["model"], str(r["tasks"]), r["system"], f"{r['steps_per_hour']:,.0f}", f"{r['first_step_s']:,.0f} s",
              percent(r["utilisation"])) for r in grid],
        )  # fmt: skip
    command = found["command"].split(" --results")[0]
    more = "" if command == f"{FULL}{name}" else f", those of `{FULL}{name}` are more"
    yield f"`plait simulate {name}`; the figures above are of `{command}`{more}."


def _validation(found: Mapping[str, Any]) -> Iterator[str]:
    lines = found["headline"].items()
    yield table(("", "share", "note"), [(name.replace("_", " "), percent(line["value"]), line["note"]) for name, line in lines])
    yield "\n".join(f"- {row['text']}" for row in of(found, "assumption"))
    rows = [row for row in of(found, "validation") if row["figure"] in ("steps_per_hour", "tokens_per_s")]
    yield folded(
        "Every figure",
        ("case", "system", "figure", "measured", "simulated", "difference"),
        [(r["case"], r["system"], r["figure"], f"{r['measured']:,.0f}", f"{r['simulated']:,.0f}", f"{100 * r['difference']:+.0f} %")
         for r in rows],
    )  # fmt: skip
    yield f"`python -m benchmarks.simulation {_quick(found)}--part validation`"


def _speed(found: Mapping[str, Any]) -> Iterator[str]:
    yield SPEED
    yield table(
        ("case", "system", "simulated", "events", "on the clock", "seconds", "events a second", "memory"),
        [(r["case"], r["system"], _span(r["days"]), f"{r['events']:,}", f"{r['clock_events']:,}", f"{r['seconds']:,.1f}",
          f"{r['events_per_s']:,.0f}", f"{r['grown_bytes'] / 2**20:,.0f} MiB") for r in of(found, "speed")],
    )  # fmt: skip
    yield f"`python -m benchmarks.simulation {_quick(found)}--part speed`"


def _span(days: float) -> str:
    return f"{days:.1f} days" if days >= 1 else f"{24 * days:.1f} h"


def _quick(found: Mapping[str, Any]) -> str:
    return "--quick " if "--quick" in found["command"] else ""


def of(found: Mapping[str, Any], kind: str) -> list[Row]:
    return [row for row in found["rows"] if row["kind"] == kind]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def folded(summary: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A long table, which a reader may open."""
    return f"<details><summary>{summary}: {len(rows)} rows</summary>\n\n{table(head, rows)}\n\n</details>"


def _range(row: Row) -> str:
    return number(row["low"]) if row["low"] == row["high"] else f"{number(row['low'])} to {number(row['high'])}"


def _difference(row: Row) -> str:
    return "-" if row.get("difference") is None else f"{100 * row['difference']:+.0f} %"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


if __name__ == "__main__":
    main()
