"""In processes of their own: what is loaded there is left out of all later collections."""

import subprocess
import sys
from pathlib import Path

MODULES = {
    "whole": "import gc, sys\nseen = gc.isenabled(), __name__, sys.argv[1:]\nif __name__ == '__main__': print(seen)\n",
    "broken": "1 / 0\n",
}
LOADS = """
import gc
from plait.types.module_loading import load_at_once
assert load_at_once("whole").seen[0] is False
assert gc.isenabled() and gc.get_freeze_count() > 1000
frozen = gc.get_freeze_count()
assert load_at_once("whole").seen and gc.get_freeze_count() == frozen, "only the first time"
try:
    load_at_once("broken")
except ZeroDivisionError:
    print(gc.isenabled())
"""


def run(folder: Path, *arguments: str) -> str:
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_the_collector_rests_while_a_module_loads_and_goes_on_afterwards(tmp_path: Path) -> None:
    assert run(tmp_path, "-c", LOADS) == "True"


def test_a_program_is_run_as_the_main_module_with_its_arguments(tmp_path: Path) -> None:
    assert run(tmp_path, "-m", "plait.transport.program", "whole", "--link-fd", "7") == "(False, '__main__', ['--link-fd', '7'])"
