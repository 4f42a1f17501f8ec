"""Disks and volumes in libvirt's storage pools.

``driver`` serves data volumes; ``pool`` serves it and ``servers``.
"""
