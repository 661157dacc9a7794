"""What a cluster that nobody here owns would do: a simulation that drives the service's own schedulers. Torch-free."""
