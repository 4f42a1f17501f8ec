"""Gateways of services: network namespaces on the hosts of switches, whatever these are."""
