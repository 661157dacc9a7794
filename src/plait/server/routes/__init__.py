"""HTTP: from requests to calls of the service, and back. No decision is made here."""
