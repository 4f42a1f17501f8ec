"""The tables of a site's state, by the database that has them.

In files, these statements make them. In PostgreSQL the migrations do, to the same columns and keys.
"""

TABLES: dict[str, dict[str, str]] = {
    "pending-looks": {
        "look": """
            sliver TEXT NOT NULL, type TEXT NOT NULL, host TEXT NOT NULL, found INTEGER NOT NULL,
            latest INTEGER NOT NULL, PRIMARY KEY (sliver, host)
        """,
    },
    "placement": {
        "claim": """
            sliver TEXT NOT NULL PRIMARY KEY, host TEXT NOT NULL, owner TEXT,
            cores INTEGER NOT NULL, ram REAL NOT NULL, disk REAL NOT NULL, devices TEXT NOT NULL,
            until REAL NOT NULL
        """,
        "node_claim": "sliver TEXT NOT NULL PRIMARY KEY, node TEXT NOT NULL, until REAL NOT NULL",
    },
    "p4-switches": {
        "p4_switch": """
            name TEXT PRIMARY KEY, sliver TEXT NOT NULL, phase TEXT NOT NULL, identity TEXT NOT NULL
        """,
    },
    "pools": {
        "port": """
            sliver TEXT NOT NULL, component TEXT NOT NULL, host TEXT NOT NULL, network TEXT NOT NULL,
            mac TEXT NOT NULL, ipv4 TEXT NOT NULL, ipv6 TEXT,
            PRIMARY KEY (sliver, component),
            UNIQUE (network, mac), UNIQUE (network, ipv4), UNIQUE (network, ipv6)
        """,
        "service_claim": """
            kind TEXT NOT NULL, key TEXT NOT NULL, sliver TEXT NOT NULL, part TEXT NOT NULL,
            PRIMARY KEY (kind, key)
        """,
        "stitch": """
            sliver TEXT NOT NULL, part TEXT NOT NULL, other TEXT NOT NULL, "end" TEXT NOT NULL,
            taken TEXT NOT NULL, address TEXT,
            PRIMARY KEY (sliver, part, other, "end"), UNIQUE (other, "end", address)
        """,
        "tap": """
            sliver TEXT NOT NULL, component TEXT NOT NULL, host TEXT NOT NULL, switch TEXT NOT NULL,
            interface TEXT NOT NULL, port TEXT NOT NULL, mac TEXT NOT NULL,
            PRIMARY KEY (sliver, component), UNIQUE (switch, port), UNIQUE (switch, mac)
        """,
    },
    "servers": {
        "server": """
            id TEXT PRIMARY KEY, sliver TEXT NOT NULL, worker TEXT NOT NULL, domain TEXT NOT NULL
        """,
    },
    "sweep": {
        "dry_run": "found TEXT NOT NULL",
        "untouched": "sliver TEXT PRIMARY KEY",
    },
    "types": {
        "sliver": "id TEXT PRIMARY KEY, type TEXT NOT NULL",
    },
}
"""Columns and keys of each table, by its name."""
