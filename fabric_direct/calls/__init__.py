"""How a call is made: limited, given up, cached, waited for, counted and traced.

::

    deadline.py      deadlines, and calls with a limit
    waiting.py       what a step waits for
    keyed_queue.py   work in order for each key, keys side by side
    read_cache.py    answers that an operation reads once
    forks.py         locks and connections in a forked child
    log_context.py   what a log line is about
    metrics.py       metrics of OpenTelemetry
    tracing.py       spans of OpenTelemetry
"""
