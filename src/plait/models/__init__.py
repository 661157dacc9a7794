"""One decoder definition for rollout and training, and how models are found, read and written."""
