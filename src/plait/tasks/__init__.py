"""The multi-task manager: what each task does next, and who may train."""
