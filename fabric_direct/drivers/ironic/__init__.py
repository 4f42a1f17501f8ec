"""Bare-metal nodes of Ironic, in a cloud or by itself."""
