"""What bears the site's stamp and nobody expects: found, shown with a token, and removed only by it.

::

    expected     the document that lists the slivers that are expected
    books        what this machine remembers of slivers: journal, claims, locks
    search       everything that bears the site's stamp, on all hosts, or no answer at all
    findings     what would go, what is left alone; its token, and what has changed since
    dry_runs     the last dry run, and the slivers on which nothing was begun since
    sweeper      a dry run, and its confirmation

Slivers are removed by the processor, each by the operation ``delete``: see
:meth:`~fabric_direct.processor.HandlerProcessor.sweep`.
"""
