"""The time limits of the tests' sites on real things: for what hangs, not for what is slow.

A test whose subject is a limit has a site of its own.
"""

PATIENT = {"call": 300.0, "probe": 300.0, "guest_boot": 600.0}
"""Many times what a quiet machine takes, in seconds.

Less than the 900 s after which pytest ends a test, so that the operation itself says what did not come.
"""
