"""Worker groups: processes that run the function calls of several deployments, whichever is on the device."""
