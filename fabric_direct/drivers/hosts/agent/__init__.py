"""What runs on a worker: functions that :class:`~fabric_direct.drivers.contract.HostDriver` calls there.

::

    bootstrap   what the worker's Python is started with: takes the modules and starts serve
    serve       takes requests, calls the functions, gives their answers
    frames      how requests and answers are written
    commands    run a program
    files       read and write
    sockets     ask the kernel by netlink
    switches    ask the daemon of Open vSwitch
    datagrams   send one from a link: the end of a DHCP lease
    pci         the functions that there are; reset, removal, rescan
    usage       what the host itself uses
    nvme        erase drives
    taps        links whose other end is a virtual machine
    usb         USB devices by where they are plugged in
    record_files  records of devices

The modules are sent to the worker's Python and kept in its memory. So they need nothing but Python's
standard library (3.9 and later) and each other, and no program of the worker.

A function may be called from outside if the ``__all__`` of its module has it. Its arguments and its
answer are JSON values, bytes in Base64; what it raises is told by its ``errno`` and its words.
"""
