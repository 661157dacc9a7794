"""Which tensors lie on the device, in the host's memory and on disk, and how they move: `StateManager`."""
