"""A real headless Chromium, spoken to by its DevTools protocol: what a page shows, and what it says in the console."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_WAIT_S = 60.0


def chromium() -> str:
    """Return the browser's path, or skip the test."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("needs chromium (Debian: apt install chromium)")
    return found


class Browser:
    """One tab."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._sent = socket, 0
        self.messages: list[str] = []  # console, exceptions, failed requests
        self.requests: list[str] = []
        self._loaded = False
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Send one command and return its result."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": parameters}))
        while True:
            answer = self._receive()
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> Any:
        answer = json.loads(self._socket.recv())
        event, values = answer.get("method"), answer.get("params", {})
        if event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.messages.append(json.dumps(values))
        elif event == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif event == "Page.loadEventFired":
            self._loaded = True
        return answer

    def show(self, path: Path, width: int, *, dark: bool) -> None:
        """Load a file at a width, as a phone where that is small."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        assert "errorText" not in self.call("Page.navigate", url=path.as_uri()), path
        while not self._loaded:
            self._receive()

    def ask(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser with a fresh profile in an existing folder, and end it."""
    websocket = pytest.importorskip("websocket")
    command = [
        chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={profile}", "about:blank",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            socket = websocket.create_connection(_address(profile, process), timeout=_WAIT_S)
            try:
                yield Browser(socket)
            finally:
                socket.close()
        finally:
            process.terminate()
            process.wait(_WAIT_S)


def _address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address of the only tab, once the browser has written its port."""
    file, until = profile / "DevToolsActivePort", time.monotonic() + _WAIT_S
    while time.monotonic() < until and process.poll() is None:
        if file.exists() and (lines := file.read_text().splitlines()):
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json/list", timeout=_WAIT_S) as answer:
                pages = [each for each in json.load(answer) if each["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.05)
    raise RuntimeError(f"chromium did not open its debugging port (exit {process.poll()})")
