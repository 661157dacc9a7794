"""A training worker that is a group of processes, each of which has a slice of the weights of its full-parameter tasks."""
