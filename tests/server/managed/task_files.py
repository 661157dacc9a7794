"""Task files as tenants send them."""

from typing import Any

import tomli_w


def task(name: str, **changes: Any) -> dict[str, Any]:
    """Supervised and RL steps on words to spell backward, which pays for single letters, so that there are gradients."""
    return {
        "name": name,
        "steps": 3,
        "groups_per_step": 2,
        "group_size": 4,
        "lora": {"rank": 4},
        "sampling": {"max_new_tokens": 8},
        "optimizer": {"learning_rate": 1e-2},
        "warm_start": {"steps": 2, "examples_per_step": 2, "learning_rate": 1e-2},
        "evaluation": {"questions": 0},
        "environment": {"kind": "reasoning_gym", "name": "spell_backward", "require_stop": False},
    } | changes


def task_file(*tasks: dict[str, Any], **more: Any) -> str:
    return tomli_w.dumps({"name": "words", "seed": 5, **more, "tasks": list(tasks)})
