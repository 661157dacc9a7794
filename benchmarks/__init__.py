"""Benchmarks: `python -m benchmarks.NAME [--quick] [--json FILE]`; results are kept under `benchmarks/results/`."""
