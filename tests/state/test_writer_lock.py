import subprocess
import sys
import time
from pathlib import Path

import pytest

from plait.state.writer_lock import WriterLock
from plait.types.errors import StateError

HOLD = """
import sys, time
from pathlib import Path
from plait.state.writer_lock import WriterLock

lock = WriterLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_a_second_writer_waits_for_the_first_to_end(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StateError, match="another process has been writing"):
            WriterLock(tmp_path, timeout_s=0.1)
        holder.kill()
        start_s = time.monotonic()
        WriterLock(tmp_path, timeout_s=120).release()
        assert time.monotonic() - start_s < 60


def test_a_released_folder_is_free(tmp_path: Path) -> None:
    WriterLock(tmp_path, timeout_s=0).release()
    WriterLock(tmp_path, timeout_s=0).release()
