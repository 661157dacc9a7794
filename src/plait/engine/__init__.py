"""Continuous batching over chunks of many adapters' generations."""
