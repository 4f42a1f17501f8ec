"""Translate playbooks to the drivers that do the same."""

from pathlib import PurePosixPath

from fabric_direct.migration.draft import SiteDraft
from fabric_direct.migration.values import Fields, Value, as_text
from fabric_direct.model import shown_model
from fabric_direct.model.services import SERVICES

_VM, _PCI = "head_vm_provisioning.yml", "worker_pci_provisioning.yml"
_PORT, _LIBVIRT = "head_port_provisioning.yml", "worker_libvirt_operations.yml"
_NSO, _AL2S = "netam_nso_data.yml", "al2s.yml"

# Resource type -> its field below `drivers:`, and the driver for each of upstream's playbooks.
_SERVICES = {kind: (kind, {_NSO: "nso", _AL2S: "al2s"}) for kind in SERVICES}
_TYPES = _SERVICES | {
    "VM": ("VM", {_VM: "openstack"}),
    "Switch": ("Switch", {"head_switch_provisioning.yml": "p4switch"}),
    "Storage": ("Storage", {"head_volume_provisioning.yml": "openstack"}),
    "SharedNIC-OpenStack-vNIC": ("vNIC", {_PORT: "openstack"}),
    "L2Bridge": ("vNIC", {_PORT: "openstack"}),
    "GPU": ("GPU", {_PCI: "hostdev"}),
    "SmartNIC": ("SmartNIC", {_PCI: "hostdev"}),
    "NVME": ("NVME", {_PCI: "hostdev"}),
    "SharedNIC": ("SharedNIC", {_PCI: "sriov"}),
    "FPGA": (
        "FPGA",
        {
            "fpga_provisioning.yml": "fpga",
            _PCI: "fpga",
            "sn1022_fpga_provisioning.yml": "sn1022",
        },
    ),
}
OF_VMS = ("openstack", "hostdev", "sriov", "fpga", "sn1022")
"""Of these drivers, those of VMs and their parts."""
# fabric_am's playbooks for what the VM's handler itself does here.
_WITHIN = {
    "operation": {
        **dict.fromkeys(("cpuinfo", "cpupin", "numainfo", "numatune", "delete"), _LIBVIRT),
        "is_deleted": _LIBVIRT,
        "reboot": _VM,
        "rescan": "pci_rescan.yml",
    },
    "config": {
        "post_boot": "head_vm_post_boot_config.yml",
        "SmartNIC": "nmcli_config_nw_interface.yml",
        "SharedNIC": "nmcli_config_nw_interface.yml",
        "Storage": "storage_config.yml",
        "ssh_keys": "ssh_keys_config.yml",
    },
    "cleanup": {"NVME": "nvme_cleanup.yml", "ALL": _VM},
}


def translate(name: str, value: Value, fields: Fields, draft: SiteDraft) -> None:
    """Put the driver of a resource type into the draft, and report playbooks without a counterpart.

    :raises Refused: if a section of playbooks is not a mapping.
    """
    if name in _WITHIN:
        for action, playbook in fields.values().items():
            _within(f"playbooks.{name}.{action}", playbook, _WITHIN[name].get(action), draft)
    elif draft.usable(f"playbooks.{name}", value, "name the driver in site.yaml: drivers"):
        _type(name, value, draft)


def _type(name: str, value: Value, draft: SiteDraft) -> None:
    label, playbook = f"playbooks.{name}", _file(value)
    kind, _, model = name.partition("_")
    types = _SERVICES if playbook in (_NSO, _AL2S) else _TYPES
    if kind not in types:
        _not_served(label, value, draft)
        return
    key, drivers = types[kind]
    usual = next(iter(drivers.values()))
    path = ("drivers", f"{key}_{shown_model(model)}" if model else key)
    draft.put(path, drivers.get(playbook, usual), value.place)
    if (kind, playbook) == ("L2PTP", _AL2S):
        why = (
            "fabric_am does nothing for a circuit of AL2S, and reports success; here it is refused"
        )
        draft.to_do(value.place, label, why, "do not advertise L2PTP of AL2S")
    if playbook not in drivers:
        _own(label, value, f"{'.'.join(path)}: {usual} does what fabric_am's playbook does", draft)


def _within(label: str, value: Value, usual: str | None, draft: SiteDraft) -> None:
    if not draft.usable(label, value, "decide what is meant") or _file(value) == usual:
        return
    if usual is None:
        _not_served(label, value, draft)
    else:
        _own(label, value, f"the handler does what fabric_am's {usual} does", draft)


def _own(label: str, value: Value, instead: str, draft: SiteDraft) -> None:
    why = f"{_file(value)} is not the playbook that fabric_am brings for it; {instead}"
    draft.skip(value.place, label, why, "check what your playbook does beyond that")


def _not_served(label: str, value: Value, draft: SiteDraft) -> None:
    why = "is not served here"
    remedy = "leave the handler of this type as it is in the actor's configuration"
    draft.skip(value.place, label, why, remedy)


def _file(value: Value) -> str:
    content = value.content
    return "" if isinstance(content, dict | list) else PurePosixPath(as_text(content)).name
