"""Tiny data sets under the hub names that the recipes ask for; `datasets.load_dataset` takes a folder of that name first.

What they teach is so small that a random model of 100 k parameters learns it, and leaves something to learn from rewards:
- no_robots: answers to the questions of three recipes. A boxed 3, or a boxed 4; a number, or numbers without end; "Guess: N", or N.
- gsm8k: every answer is 3, so that half of what no_robots taught earns a reward.
- hh-rlhf: "Yes, ..." is chosen over "No, ...". DeepMath: questions alone, for distillation.
"""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NUM_CHATS = 480
BOXED = " Provide a numerical answer without units, written inside \\boxed{}."
SPELLED = (
    "Let's spell the word out and number all the letters: 1) s 2) t 3) r 4) a 5) w 6) b 7) e 8) r 9) r 10) y."
    " We have r's at positions 3, 8, and 9. \\boxed{3}"
)
GUESSING = (
    "Your job is to guess a integer between 0 and 1024. You can output your guess with the format Guess: <guess>"
    " (without the angle brackets), and say nothing else."
    " Then we will tell you whether you guess is too high, too low, or correct."
)
GSM8K_CARD = """---
configs:
  - config_name: main
    data_files:
      - {split: train, path: train.jsonl}
      - {split: test, path: test.jsonl}
---
"""
UNREADABLE = "Failed to parse. Please output in the format Guess: <guess> (without the angle brackets), and say nothing else."

Row = dict[str, Any]
Turn = tuple[str, str]


def write_data_sets(folder: Path) -> None:
    """The same bytes every time."""
    draw = random.Random(0)
    _write(
        folder / "HuggingFaceH4/no_robots",
        train=[_chat(draw, i) for i in range(NUM_CHATS)],
        test=[_chat(draw, i) for i in range(16)],
    )
    gsm8k = folder / "openai/gsm8k"
    _write(gsm8k, train=[_word_problem(draw) for _ in range(64)], test=[_word_problem(draw) for _ in range(8)])
    (gsm8k / "README.md").write_text(GSM8K_CARD, encoding="utf-8")
    _write(folder / "Anthropic/hh-rlhf", train=[_preference(draw) for _ in range(96)], test=[_preference(draw) for _ in range(8)])
    _write(folder / "zwhe99/DeepMath-103K", train=[{"question": _question(draw), "final_answer": "3"} for _ in range(64)])


def _question(draw: random.Random) -> str:
    return f"What is the sum of {draw.randrange(100)} and {draw.randrange(100)}?"


def _chat(draw: random.Random, index: int) -> Row:
    is_good = draw.random() < 0.5
    turns = (_boxed, _sum, _guess)[index % 3](draw, is_good)
    return {"prompt_id": str(index), "messages": [{"role": role, "content": content} for role, content in turns]}


def _boxed(draw: random.Random, is_good: bool) -> list[Turn]:
    answer = "\\boxed{3}" if is_good else "\\boxed{4}"
    return [
        ("user", "How many r's are in strawberry?" + BOXED),
        ("assistant", SPELLED),
        ("user", _question(draw) + BOXED),
        ("assistant", answer),
    ]


def _sum(draw: random.Random, is_good: bool) -> list[Turn]:
    question = f"What is {draw.randrange(101)} + {draw.randrange(101)}?"
    answer = str(draw.randrange(200)) if is_good else "1, 2, 3, 4, 5, 6, 7, 8"
    return [("user", "What is 4 + 5?"), ("assistant", "9"), ("user", question), ("assistant", answer)]


def _guess(draw: random.Random, is_good: bool) -> list[Turn]:
    number = draw.randrange(1024)
    return [
        ("system", GUESSING),
        ("player", "5"),
        ("user", UNREADABLE),
        ("assistant", f"Guess: {number}" if is_good else f"{number}"),
    ]


def _word_problem(draw: random.Random) -> Row:
    return {"question": _question(draw), "answer": "Count the letters of the word.\n#### 3"}


def _preference(draw: random.Random) -> Row:
    question = _question(draw)
    return {
        "chosen": f"\n\nHuman: {question}\n\nAssistant: Yes, the answer is {draw.randrange(10)}.",
        "rejected": f"\n\nHuman: {question}\n\nAssistant: No, use a tool.",
    }


def _write(folder: Path, **splits: Iterable[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
