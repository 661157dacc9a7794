"""Settings of the whole suite."""

from hypothesis import settings

settings.register_profile("plait", deadline=None)  # These machines are shared: time limits of single examples say nothing.
settings.load_profile("plait")
