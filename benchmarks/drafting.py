"""Drafting from siblings: how many tokens a verify step gives, what that is worth by batch, what it costs where drafts never hold.

    python -m benchmarks.drafting [--quick] [--json FILE] [--figure FILE] [--run RUN]

- Groups of 16 free-running answers, temperature 1, of SmolLM2 to the questions of examples/demo.toml: by the base, and by the
  adapters of a short run of that file (made here, or `--run`).
- Acceptance is told by replay (`drafting_replay`), speed by the engine (`drafting_speed`), the loss by pairs of runs on a
  random tiny model, and on SmolLM2 with siblings that lie (`drafting_adversarial`).
- All that is drawn, drafting or not, is compared bit by bit.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.common import write_json
from benchmarks.drafting_adversarial import lies_row, noise_chunks, pair_row
from benchmarks.drafting_groups import Group, adapters_of, make_groups, sample, train
from benchmarks.drafting_model import ADAPTIVE, ONE_PATH, Model
from benchmarks.drafting_replay import replay_rows
from benchmarks.drafting_speed import BATCH_TOKENS, ESSENTIAL, SYSTEMS, speed_rows, tail_of
from benchmarks.drafting_table import draw_figure, headlines_of, print_acceptance, print_adversarial, print_speed
from benchmarks.engine_table import print_headlines
from benchmarks.seer_cases import TINY_SHAPE
from plait.models.catalogue import find
from plait.models.tiny import make_tiny_model
from plait.models.tokenizer import Tokenizer
from plait.types.sampling import SamplingParams

MODEL = "smollm2-135m-instruct"
MAX_ROWS = 48
TABLE_WIDTH = 150
"""Lines are not broken where there is no terminal."""
MIN_PAIRS = 10

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run. Batches by stage of the answers, each with how many tokens it draws at least, relative to `BATCH_TOKENS`."""

    dtypes: tuple[str, ...]
    prompts: dict[str, int]
    """Of each task, by stage."""
    batches: dict[str, tuple[int, ...]]
    share: float
    num_rounds: int
    rl_steps: int
    new_tokens: int
    adversarial_tokens: tuple[int, int]
    """Of an answer: the tiny model's, SmolLM2's."""


FULL = Size(
    dtypes=("bfloat16", "float32"), prompts={"base": 2, "trained": 5},
    batches={"base": (1, 8, 16), "trained": (1, 2, 4, 8, 16, 32)},
    share=0.6, num_rounds=2, rl_steps=8, new_tokens=48, adversarial_tokens=(96, 48),
)  # fmt: skip
QUICK = Size(
    dtypes=("bfloat16",), prompts={"base": 1, "trained": 2}, batches={"base": (4,), "trained": (1, 8)},
    share=0.5, num_rounds=2, rl_steps=4, new_tokens=32, adversarial_tokens=(48, 32),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="bfloat16, fewer groups and batches: about three minutes")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--figure", type=Path, help="draw acceptance and gain to this file")
    parser.add_argument("--run", type=Path, help="take the adapters of this run of examples/demo.toml; nothing is trained")
    arguments = parser.parse_args()
    console = Console()
    console = Console(width=max(console.width, TABLE_WIDTH))
    size = QUICK if arguments.quick else FULL
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as folder:
        trained = arguments.run or train(Path(folder), size.rl_steps)
        console.log("trained")
        acceptance, speed = run_groups(console, size, trained)
        adversarial = run_adversarial(console, size, Path(folder))
    print_acceptance(console, acceptance)
    print_speed(console, speed)
    print_adversarial(console, adversarial)
    headlines = headlines_of(acceptance, speed, adversarial)
    print_headlines(console, headlines)
    if arguments.json:
        write_json(arguments.json, [*acceptance, *speed, *adversarial], headlines)
    if arguments.figure:
        draw_figure(arguments.figure, acceptance, speed)


def run_groups(console: Console, size: Size, run: Path) -> tuple[Rows, Rows]:
    """Rows of acceptance and of speed. The answers are the first dtype's: the other's requests are known siblings by these too."""
    sampling = sampling_of(size.new_tokens)
    groups: dict[str, list[Group]] = {}
    acceptance: Rows = []
    speed: Rows = []
    for dtype in size.dtypes:
        model = Model(find(MODEL), dtype, MAX_ROWS)
        if not groups:
            groups = sampled(model, size, run, sampling)
            acceptance = replay_rows([group for stage in groups.values() for group in stage])
            console.log("groups are sampled and replayed")
        for stage, batches in size.batches.items():
            speed += stage_rows(console, model, groups[stage], batches, size, sampling)
    return acceptance, speed


def sampled(model: Model, size: Size, run: Path, sampling: SamplingParams) -> dict[str, list[Group]]:
    tokenizer = Tokenizer.load(find(MODEL))
    adapters = {"base": None, "trained": adapters_of(run)}
    return {stage: sample(model, make_groups(tokenizer, size.prompts[stage], adapters[stage]), sampling) for stage in size.prompts}


def stage_rows(
    console: Console, model: Model, groups: Sequence[Group], batches: Sequence[int], size: Size, sampling: SamplingParams
) -> Rows:
    planners, rows = {system: model.new_planner(system) for system in (ONE_PATH, ADAPTIVE)}, []
    for batch in batches:
        tail = tail_of(groups, batch, int(size.share * BATCH_TOKENS[batch]), sampling)
        systems = SYSTEMS if groups[0].stage == "trained" else ESSENTIAL
        found = speed_rows(model, tail, {"stage": groups[0].stage}, planners, size.num_rounds, systems)
        console.log(
            f"{model.dtype}, {groups[0].stage}, batch {batch}: " + ", ".join(f"{r['system']} {r['cpu_s']:.1f} s" for r in found)
        )
        rows += found
    return rows


def run_adversarial(console: Console, size: Size, folder: Path) -> Rows:
    tiny = Model(make_tiny_model(folder / "tiny", "llama", **TINY_SHAPE), "float32", MAX_ROWS)
    large = Model(find(MODEL), "bfloat16", MAX_ROWS)
    tiny_tokens, large_tokens = size.adversarial_tokens
    noise = noise_chunks(tiny.decoder.config.vocab_size, 4, tiny_tokens)
    groups = make_groups(Tokenizer.load(find(MODEL)), 1)[:1]
    return [
        pair_row(console, tiny, "noise", noise, 32, MIN_PAIRS),
        lies_row(console, large, groups, SamplingParams(large_tokens), MIN_PAIRS),
    ]


def sampling_of(new_tokens: int) -> SamplingParams:
    return SamplingParams(new_tokens, stop_token_ids=Tokenizer.load(find(MODEL)).stop_token_ids)


if __name__ == "__main__":
    main()
