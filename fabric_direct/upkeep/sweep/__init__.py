"""Orphans: resources with the site's stamp that belong to no expected sliver.

They are found, shown with a token, and removed only with that token.

::

    expected     the document that lists the slivers that are expected
    books        the records of slivers on this machine: journal, claims, locks
    search       everything that has the site's stamp, on all hosts, or an error
    findings     what would go, what is left alone; its token, and what has changed since
    dry_runs     the last dry run, and the slivers on which nothing was begun since
    sweeper      a dry run, and its confirmation

Slivers are removed by the processor, each by the operation ``delete``: see
:meth:`~fabric_direct.processor.HandlerProcessor.sweep`.
"""
