"""Guesses the next tokens of a generation from its siblings, and decides when guessing pays. Pure and free of torch."""
