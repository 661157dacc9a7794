"""What carries a worker program: a child process, a thread of this process, or an actor of a Ray cluster. Importable without torch.

- `carrier`: what all have in common; the controller knows no more.
- `process`, `thread`, `ray_executor`: the three. `choice` takes the one that the settings name; Ray is imported only then.
"""
