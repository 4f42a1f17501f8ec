"""Nova's own filters and weighers over hosts that are read from standard input: see ``placement``.

Run by the Python that has nova (``python3-nova``); nothing of nova's is started or asked. Nova's
scheduler does for each instance what is done here: all enabled filters over all hosts, all weighers over
those that pass, and the best host's state is told what it gives.
"""

import json
import os
import sys
import time
import uuid

import nova.conf
from nova import objects
from nova.objects import fields
from nova.scheduler import filters, host_manager, weights
from oslo_utils import timeutils

CONF = nova.conf.CONF


def main() -> None:
    """Print seconds for each instance, the names of the filters, and of the weighers."""
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
    CONF([], project="nova", default_config_files=[])
    objects.register_all()
    asked = json.load(sys.stdin)
    hosts = [_host(*columns) for columns in asked["hosts"]]
    chain, weighers = _filters(), _weighers()
    seconds = [_seconds(chain, weighers, hosts, _spec(*sizes)) for sizes in asked["requests"]]
    json.dump(
        {
            "seconds": seconds,
            "filters": [type(one).__name__ for one in chain],
            "weighers": [type(one).__name__ for one in weighers],
        },
        sys.stdout,
    )


def _filters() -> list[filters.BaseHostFilter]:
    handler = filters.HostFilterHandler()
    known = handler.get_matching_classes(CONF.filter_scheduler.available_filters)
    by_name = {one.__name__: one for one in known}
    return [by_name[name]() for name in CONF.filter_scheduler.enabled_filters]


def _weighers() -> list[weights.BaseHostWeigher]:
    handler = weights.HostWeightHandler()
    return [one() for one in handler.get_matching_classes(CONF.filter_scheduler.weight_classes)]


def _seconds(chain: list, weighers: list, hosts: list, spec: "objects.RequestSpec") -> float:
    began = time.process_time()
    passing = filters.HostFilterHandler().get_filtered_objects(chain, hosts, spec)
    best, *_ = weights.HostWeightHandler().get_weighed_objects(weighers, passing, spec)
    best.obj.consume_from_request(spec)
    return time.process_time() - began


def _host(name: str, cores: int, cores_used: int, ram: int, ram_used: int, disk: int) -> object:
    """Return a host: RAM in MiB, disk in GiB."""
    node = objects.ComputeNode(
        uuid=str(uuid.uuid4()),
        host=name,
        hypervisor_hostname=name,
        vcpus=cores,
        vcpus_used=cores_used,
        memory_mb=ram,
        memory_mb_used=ram_used,
        free_ram_mb=ram - ram_used,
        local_gb=disk,
        local_gb_used=0,
        free_disk_gb=disk,
        disk_available_least=disk,
        updated_at=None,
        numa_topology=None,
        pci_device_pools=None,
        host_ip="127.0.0.1",
        hypervisor_type="QEMU",
        hypervisor_version=7_000_000,
        cpu_info="{}",
        supported_hv_specs=[
            objects.HVSpec(arch="x86_64", hv_type="qemu", vm_mode=fields.VMMode.HVM)
        ],
        stats={},
        metrics="[]",
        cpu_allocation_ratio=1.0,
        ram_allocation_ratio=1.0,
        disk_allocation_ratio=1.0,
    )
    state = host_manager.HostState(name, name, str(uuid.uuid4()))
    service = {
        "host": name,
        "disabled": False,
        "forced_down": False,
        "last_seen_up": timeutils.utcnow(),
        "created_at": timeutils.utcnow(),
        "updated_at": timeutils.utcnow(),
    }
    state.update(compute=node, service=service, aggregates=[], inst_dict={})
    return state


def _spec(cores: int, ram: int, disk: int) -> "objects.RequestSpec":
    flavor = objects.Flavor(
        vcpus=cores,
        memory_mb=ram,
        root_gb=disk,
        ephemeral_gb=0,
        swap=0,
        extra_specs={},
    )
    return objects.RequestSpec(
        instance_uuid=str(uuid.uuid4()),
        project_id="project",
        num_instances=1,
        flavor=flavor,
        image=objects.ImageMeta(properties=objects.ImageMetaProps(hw_architecture="x86_64")),
        instance_group=None,
        numa_topology=None,
        pci_requests=objects.InstancePCIRequests(requests=[]),
        availability_zone=None,
        requested_destination=None,
        ignore_hosts=None,
        force_hosts=None,
        force_nodes=None,
        scheduler_hints={},
        limits=objects.SchedulerLimits(),
    )


main()
