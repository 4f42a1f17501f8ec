"""Network services on Open vSwitch: rows in its database by OVSDB, limits by OpenFlow meters."""
