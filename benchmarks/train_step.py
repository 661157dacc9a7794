"""One GRPO step, rollout and update: Plait against TRL's GRPOTrainer, in bfloat16 and in float32.

    python -m benchmarks.train_step [--quick] [--json FILE]

8 prompts x group 8 x 32 tokens (forced), LoRA of rank 16 on all linear layers, SmolLM2, both threads in each phase. Both systems
are up before the clock starts; their steps take turns, and the first of each is not measured. The fastest step of each counts:
what else runs on the machine can only add to it.
"""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common import headline, write_json
from benchmarks.train_step_systems import PlaitSteps, StepShape, StepSystem, StepTime, TrlSteps
from plait.models.catalogue import find

MODEL = "smollm2-135m-instruct"
NUM_ROUNDS = 3
DTYPES = ("bfloat16", "float32")
GOAL = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 prompts x group 8 x 16 tokens, bfloat16, one round")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS, help="steps of each system that count; the first does not")
    parser.add_argument("--dtype", choices=DTYPES, nargs="+", default=list(DTYPES), help="only these, of the full shape")
    arguments = parser.parse_args()
    console = Console()
    rows: list[dict[str, Any]] = []
    num_rounds = 1 if arguments.quick else arguments.rounds
    for shape in _shapes(arguments.quick, arguments.dtype):
        times = asyncio.run(take_turns(_systems(shape, num_rounds), num_rounds, console))
        rows += [_row(shape, name, steps) for name, steps in times.items()]
    headlines = headlines_of(rows)
    console.print(_table(rows))
    for name, values in headlines.items():
        console.print(f"{name}: {values}")
    if arguments.json:
        write_json(arguments.json, rows, headlines)


def _shapes(is_quick: bool, dtypes: Sequence[str]) -> list[StepShape]:
    path = str(find(MODEL))
    if is_quick:
        return [StepShape(path, "bfloat16", num_prompts=2, new_tokens=16)]
    return [StepShape(path, dtype) for dtype in dtypes]


def _systems(shape: StepShape, num_rounds: int) -> list[StepSystem]:
    systems: list[StepSystem] = [PlaitSteps(shape, max_steps=num_rounds + 1)]
    if TrlSteps.is_installed():
        systems.append(TrlSteps(shape))
        if shape.dtype == "bfloat16":
            systems.append(TrlSteps(shape, autocast=True))
    return systems


async def take_turns(systems: Sequence[StepSystem], num_rounds: int, console: Console) -> dict[str, list[StepTime]]:
    """Step times by system; the first step of each is left out."""
    times: dict[str, list[StepTime]] = {system.name: [] for system in systems}
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(system) for system in systems]
        for round_number in range(num_rounds + 1):
            for system in started:
                step = await system.step()
                console.log(f"{system.name}, step {round_number}: {step.wall_s:.2f} s, CPU {step.cpu_s:.2f} s")
                if round_number:
                    times[system.name].append(step)
    return times


def _row(shape: StepShape, system: str, steps: Sequence[StepTime]) -> dict[str, Any]:
    fastest = min(steps, key=lambda step: step.wall_s)
    return {
        "system": system,
        "dtype": shape.dtype,
        "prompts": shape.num_prompts,
        "group_size": shape.group_size,
        "new_tokens": shape.new_tokens,
        "rank": shape.rank,
        "step_s": fastest.wall_s,
        "cpu_s": fastest.cpu_s,
        "steps_per_hour": 3600 / fastest.wall_s,
        "parts_s": fastest.parts,
        "all_step_s": [step.wall_s for step in steps],
    }


def headlines_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By dtype against the fastest TRL; the smallest is the claim."""
    by_dtype: dict[str, float] = {}
    for row in rows:
        peers = [peer["steps_per_hour"] for peer in rows if peer["dtype"] == row["dtype"] and peer["system"] != "plait"]
        if row["system"] == "plait" and peers:
            by_dtype[row["dtype"]] = row["steps_per_hour"] / max(peers)
    if not by_dtype:
        return {"steps_per_hour_vs_trl": headline(None, GOAL, "x", note="TRL is not installed: make bench-peers")}
    note = ", ".join(f"{dtype} {gain:.2f}x" for dtype, gain in by_dtype.items())
    return {"steps_per_hour_vs_trl": headline(min(by_dtype.values()), GOAL, "x", note=f"the smallest of {note}")}


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="One GRPO step", title_justify="left")
    for name in ("dtype", "system", "step s", "CPU s", "steps/h", "parts s"):
        table.add_column(name, justify="left" if name in ("dtype", "system", "parts s") else "right")
    for row in rows:
        parts = ", ".join(f"{name} {spent_s:.2f}" for name, spent_s in row["parts_s"].items())
        table.add_row(
            row["dtype"], row["system"], f"{row['step_s']:.2f}", f"{row['cpu_s']:.2f}", f"{row['steps_per_hour']:.0f}", parts
        )
    return table


if __name__ == "__main__":
    main()
