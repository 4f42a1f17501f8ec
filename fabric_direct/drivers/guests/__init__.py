"""Read and set state inside guests, for handlers and steps.

``qemu_agent`` and ``ssh`` are the drivers; ``guest`` is one guest through its driver. ``configure`` sets
addresses in a guest. :mod:`fabric_direct.drivers.cloudinit` makes the input of a guest's first boot.
"""
