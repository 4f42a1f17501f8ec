"""Support for calls: time limits, giving up, caching, waiting, metrics and traces.

::

    deadline.py      deadlines, and calls with a limit
    waiting.py       reports of what a step waits for
    keyed_queue.py   queues: work in order for each key, different keys in parallel
    reading.py       marks of methods that only read
    read_cache.py    answers that an operation reads once
    forks.py         locks and connections in a forked child
    log_context.py   context of log lines: sliver, operation, step
    metrics.py       metrics of OpenTelemetry
    tracing.py       spans of OpenTelemetry
"""
