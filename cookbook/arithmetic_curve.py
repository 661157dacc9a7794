"""`python -m cookbook.arithmetic_curve`: math_rl's arithmetic on SmolLM2, and its reward as a table and a picture.

The results go to `cookbook/results/`: one row per step as CSV, and the curve as SVG.
"""

import argparse
import csv
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from cookbook.curve import curve_svg
from cookbook.outcome import read_metrics, rises
from cookbook.recipe import Recipe
from cookbook.run import run_one
from cookbook.served import end_on_sigterm, serving
from cookbook.workspace import Workspace
from plait.models.catalogue import find

MODEL = "smollm2-135m-instruct"
HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
RESULTS = Path(__file__).parent / "results"
COLUMNS = {
    "step": "step",
    "reward": "env/all/reward/total",
    "correct": "env/all/correct",
    "well_formed": "env/all/format",
    "kl_sample_train": "optim/kl_sample_train_v1",
    "grad_norm": "grad_norm",
    "seconds": "time/total",
}
NUM_AVERAGED = 8


def recipe(num_steps: int) -> Recipe:
    arguments = {
        "model_name": HUB_NAME, "renderer_name": "role_colon", "env": "arithmetic", "loss_fn": "importance_sampling",
        "group_size": 8, "groups_per_batch": 8, "max_tokens": 8, "learning_rate": 5e-4, "lora_rank": 16,
        "max_steps": num_steps, "eval_every": 0, "save_every": 20,
    }  # fmt: skip
    return Recipe(
        "arithmetic", "math_rl.train", arguments, num_steps, (rises(COLUMNS["reward"], 0.1),),
        shown=(COLUMNS["reward"], COLUMNS["correct"]), limit_s=7200,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """0: the reward rose; 1: it did not."""
    parser = argparse.ArgumentParser(prog="python -m cookbook.arithmetic_curve", description=__doc__)
    parser.add_argument("--steps", type=int, default=28, metavar="N")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    options = parser.parse_args(arguments)
    end_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="plait-cookbook-") as folder:
        workspace = Workspace(Path(folder), find(MODEL), names=(HUB_NAME,))
        settings = {"ALIASES": f'["{HUB_NAME}"]', "MODEL__MAX_CONTEXT_TOKENS": 256}
        with serving(MODEL, workspace.folder / "server", settings) as server:
            result = run_one(recipe(options.steps), workspace, server, Console(highlight=False))
        rows = read_metrics(workspace.log_folder("arithmetic") / "metrics.jsonl")
    write_results([row for row in rows if "grad_norm" in row], options.results)
    print("\n".join(result.problems))
    return 0 if result.passed else 1


def write_results(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "arithmetic.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([f"{row.get(metric, ''):.6g}" if metric in row else "" for metric in COLUMNS.values()] for row in rows)
    svg = curve_svg(
        [row[COLUMNS["reward"]] for row in rows], NUM_AVERAGED, "math_rl arithmetic on SmolLM2-135M: mean reward per step"
    )
    (folder / "arithmetic.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
