"""Tasks sent over HTTP, which the server runs by itself on the workers that it shares with all clients."""
