"""Whole P4 switches as slivers, by SSH and ONIE."""
