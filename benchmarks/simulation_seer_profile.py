"""What calls of the tiny model of `benchmarks.seer` take on one thread, for the validation of its simulation.

    python -m benchmarks.simulation_seer_profile [--output FILE]

No figure of `benchmarks.seer` is used: decode steps, prompts and ends of chunks are measured by themselves, as by `plait profile`.
"""

import argparse
import tempfile
from pathlib import Path

PROFILE = Path(__file__).parent / "results" / "profile-seer.json"


def main() -> None:
    import torch

    from benchmarks.seer_cases import TINY
    from plait.cli.progress import progress
    from plait.simulation.measure_profile import measure
    from plait.simulation.profile import errors_of

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PROFILE)
    output: Path = parser.parse_args().output
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as folder, progress() as tell:
        measured = measure(TINY.folder(Path(folder)), TINY.dtype, tell=tell, num_adapters=0)
    measured.write(output)
    for name, error in errors_of(measured).items():
        print(f"{name}: off by {error.median:.1%} (median), {error.worst:.1%} (worst) on {error.num_points} points not fitted")


if __name__ == "__main__":
    main()
