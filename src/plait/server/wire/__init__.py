"""What goes over the wire of the Tinker API: bytes in, checked data out, and the reverse. No I/O, no state."""
