"""TCP connections whose other end may be gone without a word."""

import socket

# tcp(7): a peer is gone that does not acknowledge for 20 s (in milliseconds), or, when there is
# nothing to say, answers none of 4 probes, one each 5 s.
_OPTIONS = {
    socket.TCP_NODELAY: 1,
    socket.TCP_USER_TIMEOUT: 20_000,
    socket.TCP_KEEPIDLE: 5,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 4,
}


def notice_loss(connection: socket.socket) -> None:
    """Have the kernel end a connection within 25 s when the other end is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _OPTIONS.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
