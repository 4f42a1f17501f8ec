"""What is seen and set inside a guest.

``qemu_agent`` and ``ssh`` are the drivers; ``cloudinit`` writes user data and seeds.
"""
