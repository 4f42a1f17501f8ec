"""Translate an AM's configuration of fabric_am and its Ansible inventory to a site of this library.

::

    translate   migrate(): all of it
    values      values with file and line; whether a vault or Jinja2 hides a value
    inventory   hosts, groups, and the variables of each host
    ini, tree   the two forms of an inventory's file
    sources     the files of an inventory, with group_vars and host_vars
    draft       the site as it is assembled, and findings: what is not translated, to do, not needed
    settings    vm_handler_config.yml, and those of vNICs, networks, AL2S and switches
    playbooks   the driver that does what a playbook did
    workers     the workers of the inventory -> hosts
    arm         FABRIC's resource model of the site
    allow_lists the resource model's devices -> hosts.…devices
    audit       what goes on removing servers after fabric_am is replaced
    cloud       the head of the inventory -> openstack, clouds.yaml
    al2s        the AL2S of the inventory -> services.al2s
    switches    the P4 switches of the inventory -> p4_switches
    nso         the NSO of the inventory -> services.nso
    actor       what to change in the AM actor's configuration
    render      site.yaml and clouds.yaml as text

Files are only read. No template is evaluated and no program of an inventory is run. Drafts, findings and
texts contain no secrets.
"""
