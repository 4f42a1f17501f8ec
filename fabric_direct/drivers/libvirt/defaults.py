"""Which drivers serve VMs of libvirt's hosts where site.yaml names none; a cloud's workers are such."""

from collections.abc import Mapping

WORKER_DRIVERS: Mapping[str, str] = {
    "tuning": "libvirt",
    "uplink": "netlink",
    "GPU": "hostdev",
    "SmartNIC": "hostdev",
    "SharedNIC": "sriov",
    "FPGA": "fpga",
    "FPGA_Xilinx-SN1022": "sn1022",
    "NVME": "hostdev",
}
"""By key of ``drivers`` in site.yaml."""
