"""Keys of cached blocks and the accounting of who holds them; no tensors here."""
