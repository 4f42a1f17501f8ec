"""Neutron's driver for Open vSwitch whose taps outlive their guests with a userspace datapath, too.

Such a datapath reads a tap by a socket, which stays with the old tap when libvirt makes it anew: a guest
that was rebooted or stopped has no network. Neutron has os-vif make lasting taps (`ovs_create_tap`, the
default) only for the kernel's datapath.
"""

from typing import Any

from neutron.plugins.ml2.drivers.openvswitch.mech_driver import mech_openvswitch


class UserspaceMechanismDriver(mech_openvswitch.OpenvswitchMechanismDriver):
    """Neutron's own, but for the taps."""

    def _pre_get_vif_details(self, agent: Any, context: Any) -> dict[str, Any]:
        return {**super()._pre_get_vif_details(agent, context), "ovs_create_tap": True}
