"""Network services on Linux bridges: links by netlink, VLANs by the bridges' own filtering."""

DRIVER = "linuxbridge"
