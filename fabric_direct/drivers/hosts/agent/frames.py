"""Requests and answers on a stream: four bytes of length, and a JSON document of so many bytes."""

import json
from typing import Any, Callable

# Bytes of one document: a larger one is a mistake, or not from us.
LARGEST = 64 * 1024**2
_LENGTH = 4
# Bytes that are read at a time.
_PIECE = 1024**2


def pack(value: Any) -> bytes:
    """Return a document with its length before it.

    :raises ValueError: if it is larger than :data:`LARGEST`.
    """
    document = json.dumps(value, separators=(",", ":")).encode()
    if len(document) > LARGEST:
        raise ValueError(f"{len(document)} bytes are more than {LARGEST}")
    return len(document).to_bytes(_LENGTH, "big") + document


def receive(read: Callable[[int], bytes]) -> Any:
    """Return the next document, or None at the end of the stream.

    :param read: returns at most so many bytes, and none at the end.
    :raises ValueError: if it is larger than :data:`LARGEST`, or not JSON that can be read.
    """
    length = int.from_bytes(_exactly(read, _LENGTH), "big")
    if length > LARGEST:
        raise ValueError(f"{length} bytes are more than {LARGEST}")
    document = _exactly(read, length)
    try:
        return json.loads(document) if document else None
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _exactly(read: Callable[[int], bytes], length: int) -> bytes:
    """Read so many bytes, or none if the stream ends before."""
    data = bytearray()
    while len(data) < length:
        piece = read(min(length - len(data), _PIECE))
        if not piece:
            return b""
        data += piece
    return bytes(data)
