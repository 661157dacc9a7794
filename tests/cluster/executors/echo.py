"""A worker program without a model: it answers every frame, and does what some of them say."""

import os
import time

from plait.cluster.executors.carrier import WorkerLink
from plait.transport import ParentLink


def serve(link: WorkerLink) -> None:
    while (frame := link.receive()) is not None:
        match frame:
            case b"return":
                return
            case b"raise":
                raise ZeroDivisionError("as told")
            case b"variable":
                link.send(os.environ.get("PLAIT_TEST", "").encode())
            case b"none waits":
                assert link.receive(0.0) is None
                assert link.receive(0.01) is None
                link.send(b"none")
            case b"never look":
                time.sleep(3600)
            case _:
                link.send(frame)


if __name__ == "__main__":
    serve(ParentLink.from_arguments())
