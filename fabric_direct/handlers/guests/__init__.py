"""Guests of any sliver: their host keys, the wait for them, the keys of their users."""
