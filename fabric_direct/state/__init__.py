"""The state of a site: in files below its ``state_dir``, or in a database that machines share.

store.py says what a store is, site_store.py which one a site has, tables.py what tables there are;
copying.py moves a state from one to another. In files:

::

    journal/               journal.py: operations under way, and those that left something
    steps/                 step_notes.py: the steps of what is under way, for onlookers
    locks/                 locks.py: locks between threads and processes
    history/               audit_trail.py: who asked for what, and what came of it
    watch/                 repair_history.py: repairs by watchers
    pools.sqlite           service_claims.py: VLANs, subnets and addresses of network services
                           (service_choice.py chooses free ones); stitches.py: what is stitched to
                           what; drivers/libvirt/networks/address_pools.py: addresses of NICs
    pending-looks.sqlite   pending_looks.py: hosts where a deleted sliver was not looked for yet
    types.sqlite           sliver_types.py: the resource types of slivers, by their ids
    placement.sqlite       placement/claims.py: what slivers take of hosts
    cloud/                 drivers/openstack/client/kept_session.py: the login of a cloud
    devices/               drivers/libvirt/passthrough/records.py: devices that are not clean yet
    known_hosts            drivers/ssh/known_hosts.py: host keys
    p4-switches.sqlite     drivers/p4switch/records.py: who has a P4 switch
    servers.sqlite         drivers/openstack/servers/records.py: the servers of slivers in a cloud
    volumes/               drivers/libvirt/storage/pool.py: disks and volumes, without a volume_pool
    sweep.sqlite           upkeep/sweep/dry_runs.py: the last dry run of a sweep
    zone/                  zones/: orders, instances, key and lock of a zone
    page/token             page/sessions.py: the token of the page
    fake.sqlite            drivers/fake/kept.py: hosts in memory that are kept

Files by file_store.py: documents.py has one for each document, line_file.py appends lines, database.py
opens SQLite, files.py replaces files in one step. PostgreSQL: postgresql/.
"""
