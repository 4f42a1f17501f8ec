"""Cinder's volumes."""
