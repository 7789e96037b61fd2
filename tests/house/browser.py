"""A headless Chromium, by its DevTools protocol: as much of it as tests of pages need."""

import base64
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import websocket

SECONDS_MAX = 60
LOOK_SECONDS = 0.02  # Between two looks at what a page is to become.
# Key codes, for keys that have no character.
CODES = {
    "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
    "Tab": 9,
}  # fmt: skip


class Browser:
    def __init__(self, program):
        self.home = tempfile.TemporaryDirectory(prefix="console")
        flags = ["--headless=new", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update",
                 "--remote-debugging-port=0", f"--user-data-dir={self.home.name}"]  # fmt: skip
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        self.process = subprocess.Popen(
            [program, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.calls = 0
        self.pages = {}
        try:
            self.socket = self.connect()
        except BaseException:
            self.process.kill()
            raise

    def connect(self):
        port_file = Path(self.home.name, "DevToolsActivePort")
        give_up = time.monotonic() + SECONDS_MAX
        while not port_file.exists() or len(port_file.read_text().splitlines()) < 2:
            if self.process.poll() is not None or time.monotonic() > give_up:
                raise AssertionError("chromium did not start")
            time.sleep(LOOK_SECONDS)
        port, path = port_file.read_text().splitlines()
        return websocket.create_connection(
            f"ws://127.0.0.1:{port}{path}", timeout=SECONDS_MAX, suppress_origin=True
        )

    def call(self, method, session=None, **parameters):
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self.socket.send(json.dumps(message))
        while True:
            heard = json.loads(self.socket.recv())
            if heard.get("id") == message["id"]:
                if "error" in heard:
                    raise AssertionError(f"{method}: {heard['error']}")
                return heard["result"]
            page = self.pages.get(heard.get("sessionId"))
            if page is not None and "method" in heard:
                page.hear(heard["method"], heard["params"])

    def open(self, before=""):
        """A page; `before` is a script that runs before those of each document."""
        return Page(self, before)

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait(SECONDS_MAX)
        # Its children may be writing yet.
        for _ in range(50):
            try:
                self.home.cleanup()
                return
            except OSError:
                time.sleep(LOOK_SECONDS)


class Page:
    def __init__(self, browser, before):
        self.browser = browser
        self.problems = []  # Errors and warnings of the page's console.
        self.requests = []  # (method, URL)
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        browser.pages[self.session] = self
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        if before:
            self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        self.resize(1280, 860)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def hear(self, method, told):
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(told["exceptionDetails"].get("exception", told)))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.problems.append(str(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            entry = told["entry"]
            self.problems.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append((told["request"]["method"], told["request"]["url"]))

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme},
                            {"name": "prefers-reduced-motion", "value": "reduce"}])  # fmt: skip

    def go(self, url):
        self.call("Page.navigate", url=url)
        self.await_that("document.readyState === 'complete'", url)

    def run(self, script):
        """The value of an expression, or of its promise."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True,
                         returnByValue=True)  # fmt: skip
        if "exceptionDetails" in done:
            raise AssertionError(f"{script}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def text(self):
        return self.run("document.body?.innerText")

    def await_that(self, script, what):
        give_up = time.monotonic() + SECONDS_MAX
        while not self.run(script):
            if time.monotonic() > give_up:
                raise AssertionError(f"{what} does not come; the page says:\n{self.text()}")
            time.sleep(LOOK_SECONDS)

    def await_text(self, words):
        self.await_that(f"document.body?.innerText.includes({json.dumps(words)})", repr(words))

    def press(self, key):
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = CODES.get(key, ord(key[0].upper()))
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code,
                      **more)  # fmt: skip

    def type(self, words):
        self.call("Input.insertText", text=words)

    def picture(self, path):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        del self.browser.pages[self.session]
        self.browser.call("Target.closeTarget", targetId=self.target)
