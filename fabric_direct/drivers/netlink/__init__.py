"""Links of a host by netlink: ``uplink`` sets VEPA and VF settings, ``vlan`` makes VLAN interfaces."""
