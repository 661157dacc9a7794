"""One worker tests for all that would get the same answer, and nobody takes an answer that is not theirs."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import torch

from plait.models.invariance import InvarianceReport
from plait.models.invariance_answer import answer_once, subject_of
from plait.models.tiny import tiny_config

GRANTED, REFUSED = InvarianceReport(True, "all equal"), InvarianceReport(False, "not equal")

HOLDER = """
import sys, time
from pathlib import Path
from plait.models.invariance_answer import answer_once
def test():
    print("testing", flush=True)
    time.sleep(600)
answer_once(Path(sys.argv[1]), "a", test)
"""


def test_who_asks_while_another_tests_waits_for_its_answer(tmp_path: Path) -> None:
    begun, calls = threading.Barrier(8), list[str]()

    def ask() -> InvarianceReport:
        begun.wait()
        return answer_once(tmp_path, "a", lambda: calls.append("a") or REFUSED)  # type: ignore[func-returns-value]

    with ThreadPoolExecutor(8) as pool:
        reports = [future.result() for future in [pool.submit(ask) for _ in range(8)]]
    assert (reports, calls) == ([REFUSED] * 8, ["a"])
    assert answer_once(tmp_path, "b", lambda: GRANTED) == GRANTED


def test_a_tester_that_dies_leaves_the_test_to_the_next(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "testing\n"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(answer_once, tmp_path, "a", lambda: GRANTED)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
            os.kill(holder.pid, signal.SIGKILL)
            assert waiting.result(timeout=120) == GRANTED
    assert answer_once(tmp_path, "a", lambda: REFUSED) == GRANTED


@pytest.mark.parametrize("content", [b"", b"{", b'{"granted": "yes"}', bytes(range(256))])
def test_an_answer_that_cannot_be_read_is_none(tmp_path: Path, content: bytes) -> None:
    answer_once(tmp_path, "a", lambda: GRANTED)
    (kept,) = (path for path in tmp_path.iterdir() if path.suffix != ".lock")
    kept.write_bytes(content)
    assert answer_once(tmp_path, "a", lambda: REFUSED) == REFUSED
    assert answer_once(tmp_path, "a", lambda: GRANTED) == REFUSED


def test_without_the_folder_everybody_tests(tmp_path: Path) -> None:
    assert answer_once(tmp_path / "absent", "a", lambda: GRANTED) == GRANTED
    assert answer_once(tmp_path / "absent", "a", lambda: REFUSED) == REFUSED
    assert not (tmp_path / "absent").exists()


def test_whatever_the_answer_depends_on_makes_another_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config()
    subjects = [subject_of(config, "d", "float32"), subject_of(config, "e", "float32"), subject_of(config, "d", "bfloat16")]
    subjects.append(subject_of(msgspec.structs.replace(config, rope_theta=2.0), "d", "float32"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    subjects.append(subject_of(config, "d", "float32"))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    subjects.append(subject_of(config, "d", "float32"))
    assert len(set(subjects)) == len(subjects)
    monkeypatch.setenv("UNRELATED", "1")
    assert subject_of(config, "d", "float32") == subjects[-1]
