"""The self-test of batch invariance, once for all workers of one controller that would get the same answer.

- An answer goes by all that it depends on: base and configuration, dtype, threads, build and variables of torch and its math
  libraries, processor and machine.
- The first worker tests while the others wait for its answer. If it dies meanwhile, the next one tests.
- The folder belongs to one start of a run or server, so nothing is taken from a machine as it once was. Where the folder is not, as
  on another machine of a cluster, each worker tests for itself.
"""

import fcntl
import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import torch

from plait.models.invariance import InvarianceReport
from plait.models.machine_choice import machine_name
from plait.types.model import ModelConfig

LIBRARY_VARIABLES = ("ATEN_", "DNNL_", "GOMP_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "TORCH_")
"""Beginnings of environment variables that choose kernels or threads."""


def answer_once(folder: Path, subject: str, test: Callable[[], InvarianceReport]) -> InvarianceReport:
    """What `test` says of `subject`, or said when a worker first asked. `folder` must exist, else it is tested each time."""
    name = hashlib.blake2b(subject.encode(), digest_size=16).hexdigest()
    try:
        lock = open(folder / f"{name}.lock", "wb")  # noqa: SIM115
    except OSError:
        return test()
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Let go of when the file is closed, or its process ends.
        return _kept(folder / name) or _keep(folder / name, test())


def subject_of(config: ModelConfig, base_digest: str, dtype: str) -> str:
    """All that the answer depends on, in this process."""
    variables = sorted(f"{key}={value}" for key, value in os.environ.items() if key.startswith(LIBRARY_VARIABLES))
    parts = [
        base_digest,
        msgspec.json.encode(config).decode(),
        dtype,
        str(torch.get_num_threads()),
        torch.__config__.show(),
        machine_name(),
        platform.node(),
        *variables,
    ]
    return "\n".join(parts)


def _kept(path: Path) -> InvarianceReport | None:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=InvarianceReport)
    return None


def _keep(path: Path, report: InvarianceReport) -> InvarianceReport:
    with suppress(OSError), tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as scratch:
        scratch.write(msgspec.json.encode(report))
        scratch.flush()
        os.replace(scratch.name, path)
    return report
