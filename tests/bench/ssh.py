"""SSH as the figures need it: when a guest says its first word, and whether a command answers."""

import socket
import threading
import time
from concurrent.futures import Future

import paramiko

# Seconds: between two tries, for each of them, and for the banner of a guest that runs commands.
EACH, TRY, SHOWN = 0.1, 2.0, 60.0


class Banner:
    """Looks for the first SSH banner at an address, from the moment that it is made."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._seen: Future[float] = Future()
        self._given_up = threading.Event()
        threading.Thread(target=self._look, name="banner", daemon=True).start()

    def at(self) -> float:
        """Return when it was there, by ``time.perf_counter``."""
        return self._seen.result(SHOWN)

    def give_up(self) -> None:
        """Look no longer."""
        self._given_up.set()

    def _look(self) -> None:
        while not self._given_up.is_set():
            if _says_ssh(self._address):
                self._seen.set_result(time.perf_counter())
                return
            time.sleep(EACH)


def _says_ssh(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), TRY) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def answers(address: str, user: str, key: paramiko.PKey) -> bool:
    """Log in, whatever host key is shown, and return whether a command succeeds."""
    with paramiko.SSHClient() as client:
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        try:
            client.connect(
                address,
                username=user,
                pkey=key,
                allow_agent=False,
                look_for_keys=False,
                timeout=TRY,
                banner_timeout=5,
                auth_timeout=5,
            )
            return client.exec_command("true", timeout=5)[1].channel.recv_exit_status() == 0
        except (paramiko.SSHException, OSError, EOFError):
            return False
