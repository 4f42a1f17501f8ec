"""forget.py HOST: delete the servers of a host that was booted anew and has no domain of them."""

import sys

import openstack

cloud = openstack.connect()
servers = [
    each for each in cloud.compute.servers(all_projects=True) if each.compute_host == sys.argv[1]
]
for server in servers:
    cloud.compute.delete_server(server, force=True)
for server in servers:
    cloud.compute.wait_for_delete(server, wait=120)
