"""Decisions of the service: order of calls, futures, sessions, quotas, shares, provenance. Pure: the clock is passed in."""
