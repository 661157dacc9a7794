"""The JSON bodies of the Tinker API, one noun a file.

Requests ignore fields that they do not know and are strict about those that they do; responses are what SDK 0.38 reads.
Times may be given in seconds since the epoch.
"""
