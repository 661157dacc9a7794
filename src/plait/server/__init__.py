"""The service that speaks the Tinker API."""
