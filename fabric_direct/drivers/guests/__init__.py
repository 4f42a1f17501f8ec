"""What is read and set inside guests; handlers and steps use it.

``qemu_agent`` and ``ssh`` are the drivers, ``guest`` one guest through its driver. ``configure`` sets
addresses in a guest. What a guest reads at its first boot is in :mod:`fabric_direct.drivers.cloudinit`.
"""
