"""Nova's servers: requests, life cycle, flavors, hot plug, inventory. ``driver`` is the entry point."""
