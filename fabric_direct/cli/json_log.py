"""The log as JSON, one object a line."""

import json
import logging
from datetime import UTC, datetime

from fabric_direct.calls.log_context import known


class JsonFormatter(logging.Formatter):
    """Formats a record with what its work is about; in ASCII, so that it can steer no terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line: time, level, logger, message; sliver, operation, step, exception if known."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {"time": time, "level": record.levelname, "logger": record.name}
        fields |= {"message": record.getMessage(), **known()}
        if step := getattr(record, "step", ""):
            fields["step"] = step
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)
