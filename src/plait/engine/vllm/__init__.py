"""vLLM as the rollout engine: the same chunks in, the same results out. Imported only where it was chosen."""
