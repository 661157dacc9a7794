"""The service with its training role in one process, killed at every commit and every rename."""
