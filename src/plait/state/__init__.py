"""What outlives a process: the run directory, one atomic record per step, samples, and recovery. Importable without torch."""
