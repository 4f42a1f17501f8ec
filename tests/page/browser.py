"""A headless Chromium, driven by its DevTools protocol over two pipes: nothing else is needed."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

from fabric_direct.calls.deadline import wait_until

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe"),
)
SECONDS = 30


def program() -> str | None:
    """Return the browser of this machine, if there is one."""
    return shutil.which("chromium")


class Browser:
    """One tab of a browser with a profile of its own."""

    def __enter__(self) -> Self:
        self._profile = tempfile.mkdtemp(prefix="page-browser-")
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        argv = [str(program()), *_FLAGS, f"--user-data-dir={self._profile}"]
        # The protocol is spoken on the file descriptors 3 and 4.
        script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *argv],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._answers = os.fdopen(self._in, "rb")
        self._number, self._session, self._loaded = 0, "", False
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.ask("Page.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._session = ""
        self.ask("Browser.close")
        self._process.wait(SECONDS)
        os.close(self._out)
        self._answers.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    def ask(self, method: str, **params: Any) -> Any:
        """Call a method of the protocol; return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._take()).get("id") != self._number:
            pass
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _take(self) -> Any:
        """Return the next message of the browser: an answer, or an event."""
        message = json.loads(self._next())
        self._loaded |= message.get("method") == "Page.loadEventFired"
        return message

    def _next(self) -> bytes:
        text = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        return bytes(text)

    def go(self, url: str) -> None:
        """Load a page; block until it is loaded."""
        self.ask("Page.navigate", url=url)
        self._loaded = False  # what came before was of the page before
        self._await_loaded()

    def follow(self, script: str) -> None:
        """Run a script that leads to another page; block until that is loaded."""
        self._loaded = False
        self.run(script)
        self._await_loaded()

    def _await_loaded(self) -> None:
        while not self._loaded:
            self._take()

    def run(self, script: str) -> Any:
        """Return the value of an expression on the page."""
        found = self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Block until an expression is true on the page."""
        wait_until(condition, lambda: bool(self.run(condition)), timeout=SECONDS)

    def scripts(self, *, on: bool) -> None:
        """Switch scripts of pages on or off, from the next page on."""
        self.ask("Emulation.setScriptExecutionDisabled", value=not on)

    def size(self, width: int, height: int) -> None:
        """Set the size of the window, in CSS pixels."""
        values = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **values)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write a picture of the page, PNG; of the whole page or of what the window shows."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
