"""The `plait` command. Starting it imports neither torch nor numpy nor pydantic; each command imports what it needs."""
