"""`plait run` into a pipe, as a process of its own: something at once, and something on what takes long."""

import os
import re
import subprocess
import sys
from pathlib import Path

from plait.models.tiny import make_tiny_model

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
REWARDS = """
import time
from pathlib import Path

def wait_for(name):
    while not (Path(__file__).parent / name).exists():
        time.sleep(0.01)

wait_for("may-start")

def question(index, seed):
    return {"question": f"question {seed}-{index}"}

def score(example, answer):
    wait_for("may-score")
    return (len(answer) % 5) / 4
"""
"""What a run needs before it can start, and what its step needs to end: each waits for a file."""


def write_tasks(folder: Path) -> Path:
    make_tiny_model(folder / "model", hidden_size=128, intermediate_size=256, head_dim=64)
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "tasks.toml").write_text("""
name = "piped"
model = { path = "model", max_context_tokens = 128, dtype = "float32" }
workers = { layout = "shared", environment_processes = 4 }
engine = { max_rows = 4, slot_tokens = 512, pool_tokens = 512, batch_invariant = "off" }
[[tasks]]
name = "sums"
steps = 1
groups_per_step = 2
group_size = 2
sampling = { max_new_tokens = 4 }
evaluation = { questions = 0 }
[tasks.environment]
kind = "function"
function = "rewards.py:score"
examples = "rewards.py:question"
require_stop = false
score_timeout_s = 600
""")
    return folder / "tasks.toml"


def test_a_run_into_a_pipe_says_at_once_what_starts_and_then_what_takes_long(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "plait.cli.main", "run", str(write_tasks(tmp_path)), "--runs", str(tmp_path / "runs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TERM": "xterm"}) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        log = tmp_path / "runs" / "piped" / "events.jsonl"
        assert not log.exists() or not log.stat().st_size
        (tmp_path / "may-start").touch()
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if "rolling out step 1, " in line:
                (tmp_path / "may-score").touch()
    assert process.returncode == 0
    assert first[10:].rstrip() == f"starting run piped: model in float32, tasks sums, in {tmp_path}/runs/piped"
    assert not CONTROL.search("".join(lines))
    text = "\n".join(lines)
    started = text.index("run piped started")
    told = re.search(r"sums \d/4: rolling out step 1, \d+(\.\d)? s so far", text)
    assert told is not None
    assert started < told.start() < text.index("sums  step 1/1")
