"""Functions that :class:`~fabric_direct.drivers.contract.HostDriver` calls on a worker.

::

    bootstrap   starts in the worker's Python: takes the modules and starts serve
    serve       takes requests, calls the functions, returns their answers
    frames      the encoding of requests and answers
    commands    run a program
    files       read and write
    sockets     ask the kernel by netlink
    bridge_modes  VEB and VEPA of NICs
    link_changes  wait for changes of links
    switches    ask the daemon of Open vSwitch
    datagrams   send a datagram from a link, to end a DHCP lease
    pci         the PCI functions of the host; reset, removal, rescan
    usage       the PCI functions that the host itself uses
    programs    the PCI functions that programs have: vfio, uio, vDPA, mediated devices
    nvme        erase drives
    taps        links whose other end is a virtual machine
    usb         USB devices by the port into which they are plugged
    record_files  records of devices

The modules are sent to the worker's Python and kept in its memory. They therefore need only Python's
standard library and each other, and no program of the worker. They run on Python 3.6 and later, which
is what FABRIC's workers have: annotations are those of :mod:`typing`, and ``make lint`` refuses what is
newer.

A function may be called from outside if it is in the ``__all__`` of its module. Its arguments and its
answer are JSON values, bytes in Base64; an exception is returned as its ``errno`` and its message.
"""
