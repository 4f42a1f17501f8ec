"""Processes of their own, which share nothing with the tests' process.

They are forked from one that has imported the modules of all tests that start them: to import these
takes longer than what the tests do.
"""

import multiprocessing

APART = multiprocessing.get_context("forkserver")
APART.set_forkserver_preload(
    [
        "tests.unit.cores",
        "tests.unit.test_address_pools",
        "tests.unit.test_database",
        "tests.unit.test_device_records",
        "tests.unit.test_kept_site",
        "tests.unit.test_placement_claims",
        "tests.unit.test_zone_server",
    ]
)
