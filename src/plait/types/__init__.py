"""Frozen, torch-free data that crosses module and process boundaries."""
