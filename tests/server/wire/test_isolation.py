"""What the formats may load: neither torch nor the SDK, whose descriptors live beside ours only in a client's process."""

import subprocess
import sys


def test_neither_torch_nor_the_sdk_is_loaded() -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        "import plait.server.wire as top\n"
        "for module in pkgutil.walk_packages(top.__path__, top.__name__ + '.'): importlib.import_module(module.name)\n"
        "assert not {'torch', 'tinker'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
