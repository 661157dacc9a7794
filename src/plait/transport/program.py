"""`python -m plait.transport.program MODULE ARGUMENTS`: as `python -m MODULE ARGUMENTS`, with a quicker start.

The collector of reference cycles rests until the module takes its link: see `types.module_loading`.
"""

import gc
import runpy
import sys


def main() -> None:
    del sys.argv[0]
    gc.disable()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
