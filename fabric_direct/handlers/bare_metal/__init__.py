"""Whole machines."""
