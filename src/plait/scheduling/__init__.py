"""Which function call a worker group runs next, and how long calls and switches take. Pure and free of torch."""
