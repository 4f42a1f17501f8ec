"""Servers, networks and volumes by OpenStack, with openstacksdk."""
