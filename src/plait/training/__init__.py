"""Losses, packing, and the step of one adapter. `advantages`, `datums`, `packing` and `schedule` are torch-free."""
