"""`plait version`."""

from plait import __version__


def version() -> None:
    print(f"plait {__version__}")
