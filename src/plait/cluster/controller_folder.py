"""A folder of this process on this machine, for small things that its workers tell each other. It goes with the process."""

import tempfile
from functools import cache


@cache
def _folder() -> "tempfile.TemporaryDirectory[str] | None":
    try:
        return tempfile.TemporaryDirectory(prefix="plait-controller-")
    except OSError:  # Nowhere to write: workers do without.
        return None


def controller_folder() -> str:
    """Empty if there is none."""
    folder = _folder()
    return "" if folder is None else folder.name
