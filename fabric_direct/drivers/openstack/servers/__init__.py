"""Nova's servers: requests, lifecycle, flavors, hot plug, inventory. ``driver`` is the entry point."""
