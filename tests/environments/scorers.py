"""User code for the environment tests: good, slow, broken and hostile."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from plait.environments.protocol import Score


def examples(index: int, seed: int) -> dict[str, Any]:
    return {"question": f"number {index} of {seed}", "index": index, "demonstration": str(index)}


def few_examples(index: int, seed: int) -> dict[str, Any]:
    return {"question": f"number {index % 20}"}


def two_fields(index: int, seed: int) -> dict[str, Any]:
    return {"text": "no question"}


def score(example: dict[str, Any], answer: str) -> Any:
    """Do what the answer says."""
    match answer.split(" "):
        case ["hang"]:
            time.sleep(3600)
        case ["spin"]:
            while True:
                pass
        case ["wait", path]:
            Path(f"{path}.{os.getpid()}").touch()
            while not os.path.exists(path):
                time.sleep(0.01)
        case ["sleep", seconds]:
            time.sleep(float(seconds))
        case ["die"]:
            os._exit(5)
        case ["spawn"]:
            subprocess.Popen(["sleep", "3600"])
            time.sleep(3600)
        case ["raise"]:
            raise RuntimeError("the judge is ill")
        case ["exit"]:
            sys.exit(1)
        case ["nan"]:
            return float("nan")
        case ["text"]:
            return "1.0"
        case ["none"]:
            return None
        case ["metrics"]:
            return Score(0.5, {"style": 2.0})
        case ["pid"]:
            return os.getpid()
        case ["print"]:
            print("y" * 300_000, flush=True)
    return answer == str(example.get("index"))


def hang_early(example: dict[str, Any], answer: str) -> float:
    time.sleep(3600)
    return 1.0
