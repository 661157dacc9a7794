"""What a run leaves behind for people and programs: its event log and what follows it."""
