"""Worker processes: what runs in them and how the controller talks to them."""
