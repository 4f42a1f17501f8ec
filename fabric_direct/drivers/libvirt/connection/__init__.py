"""Connections to libvirt: one for each URI and process, and the event loop that serves them.

Every other room of ``libvirt`` comes here for its connection.
"""
