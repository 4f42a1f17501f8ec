"""How each API is spoken to. :mod:`fabric_direct.drivers.base` holds the interfaces."""
