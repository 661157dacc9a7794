"""A child for the transport tests: answers commands given as text."""

import os
import subprocess
import sys
import time

from plait.transport import ParentLink


def main() -> None:
    link = ParentLink.from_arguments()
    link.send(" ".join(link.arguments).encode())
    while (message := link.receive(None)) is not None:
        _answer(link, message)


def _answer(link: ParentLink, message: bytes) -> None:
    match message.split(b" ")[0]:
        case b"exit":
            print("last words", file=sys.stderr, flush=True)
            sys.exit(int(message.split(b" ")[1]))
        case b"hang":
            time.sleep(3600)
        case b"variable":
            link.send(os.environ.get(message.split(b" ")[1].decode(), "unset").encode())
        case b"grandchild":
            process = subprocess.Popen(["sleep", "3600"])
            link.send(str(process.pid).encode())
        case b"flood":
            print("x" * 100_000, flush=True)
            link.send(b"done")
        case b"garbage":
            os.write(link.fileno(), b"\xff" * 8)
        case _:
            link.send(message)


if __name__ == "__main__":
    try:
        main()
    except EOFError:
        sys.exit(7)
