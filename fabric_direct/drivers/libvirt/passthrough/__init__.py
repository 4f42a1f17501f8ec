"""PCI functions of a worker: who has them, passed through, taken back, cleaned.

``hostdev``, ``sriov`` and ``cold_plug`` are the drivers. ``topology`` reads the host's functions at one
moment, ``domain_claims`` which domain has which, ``records`` what is written down of them.
"""
