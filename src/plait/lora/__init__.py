"""Adapters: shapes, initial values, mixing many in one batch, PEFT files."""
