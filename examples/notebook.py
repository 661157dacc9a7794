"""Two learning rates side by side, on one base model and in one process group. Run: python examples/notebook.py [MODEL]."""

import sys
from typing import Any

from plait.client import Run


def sums(name: str, learning_rate: float) -> dict[str, Any]:
    """A task: one-digit sums."""
    return {
        "name": name,
        "steps": 8,
        "environment": {
            "kind": "reasoning_gym",
            "name": "chain_sum",
            "options": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
            "answer_format": "last_number",
        },
        "sampling": {"max_new_tokens": 12},
        "optimizer": {"learning_rate": learning_rate},
        "evaluation": {"questions": 32, "every_steps": 4},
    }


def main(model: str = "smollm2-135m-instruct") -> None:
    tasks = [sums("slow", 1e-4), sums("fast", 1e-3)]
    with Run(name="learning-rates", model={"path": model}, tasks=tasks) as run:
        for step in run.steps():
            print(f"{step.task:<6} step {step.step}: reward {step.reward_mean:.2f}, gradient {step.grad_norm:.3f}")
    for task in tasks:
        print(task["name"], "held-out accuracy by version:", run.accuracy(task["name"]))
    print("report:", run.report())


if __name__ == "__main__":
    main(*sys.argv[1:2])
