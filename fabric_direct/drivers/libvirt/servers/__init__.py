"""Domains: their XML, life cycle, hot plug, tuning and inventory.

``driver`` is the entry point. ``lookup`` finds a domain by its stamp; ``passthrough`` uses it, ``power``
and ``unplug``, too.
"""
