"""Python runs this at the start of each process that has this folder in PYTHONPATH: real workers of a real server die on demand.

PLAIT_TEST_KILL_AT names a file. While it is there, the first rename whose source or target contains the file's text kills the
process that is about to make it, once.
"""

import os
import signal
import sys


def _install(order: str) -> None:
    def watch(event: str, values: tuple[object, ...]) -> None:
        if event != "os.rename" or not os.path.exists(order):
            return
        with open(order) as file:
            wanted = file.read()
        if any(wanted in str(value) for value in values[:2]):
            os.unlink(order)
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


if "PLAIT_TEST_KILL_AT" in os.environ:
    _install(os.environ["PLAIT_TEST_KILL_AT"])
