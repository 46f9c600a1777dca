# SPDX-License-Identifier: MIT
"""Drives a headless Chromium over its DevTools pipe; needs only Python's standard library and the browser.

The protocol (https://chromedevtools.github.io/devtools-protocol) is JSON messages ended by a NUL byte: commands go to the
browser's descriptor 3, answers and events come from its descriptor 4.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chromium-headless-shell")

KEY_CODES = {"Enter": 13, "Escape": 27, "Tab": 9, "Home": 36, "End": 35,
             "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class BrowserError(Exception):
    pass


def find_browser():
    """The path of a browser, or None.  The environment variable ATTN_CHROMIUM may name one."""
    return next((path for path in map(shutil.which, (os.environ.get("ATTN_CHROMIUM", ""),) + NAMES) if path), None)


class Browser:
    """One browser with one page.  `messages`, `failures`, `requests` and `dialogs` collect console output, errors, network requests and
    dialogs of the page.  renew() replaces the page by one with no state of the last."""

    def __init__(self, path, width=1280, height=800, timeout=60):
        self.timeout = timeout
        self.profile = tempfile.TemporaryDirectory(prefix="attn-view-", ignore_cleanup_errors=True)
        from_us, self.to_browser = os.pipe()
        self.from_browser, to_us = os.pipe()
        arguments = [path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
                     "--disable-extensions", "--disable-features=IsolateSandboxedIframes", "--hide-scrollbars", "--force-device-scale-factor=1", "--host-resolver-rules=MAP * ~NOTFOUND",
                     f"--user-data-dir={self.profile.name}", "about:blank"]
        # The shell moves the pipes to the two descriptors that the browser uses.
        script = f'exec 3<&{from_us} 4>&{to_us}; exec "$@"'
        self.process = subprocess.Popen(["/bin/bash", "-c", script, "browser"] + arguments, pass_fds=(from_us, to_us),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(from_us)
        os.close(to_us)
        self.buffer = b""
        self.last_id = 0
        self.session = self.context = None
        self.size = width, height
        self.renew()

    def renew(self):
        """Closes the page and opens an empty one with its own storage."""
        self.session, old = None, self.context
        self.context = self.send("Target.createBrowserContext")["browserContextId"]
        if old:
            self.send("Target.disposeBrowserContext", browserContextId=old)
        self.forget()
        target = self.send("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(domain + ".enable")
        self.resize(*self.size)

    def forget(self):
        self.messages, self.failures, self.requests, self.dialogs, self.contexts, self.loaded = [], [], [], [], [], False

    def close(self):
        for descriptor in (self.to_browser, self.from_browser):
            os.close(descriptor)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()

    # ---- the protocol

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.from_browser], [], [], max(0, deadline - time.monotonic()))[0]:
                raise BrowserError("the browser does not answer")
            part = os.read(self.from_browser, 1 << 20)
            if not part:
                raise BrowserError("the browser ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        if event.get("sessionId") != self.session:
            return # an event of a closed page
        method, values = event["method"], event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.messages.append((values["type"], " ".join(str(a.get("value", a.get("description"))) for a in values["args"])))
        elif method == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.failures.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            self.failures.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method == "Runtime.executionContextCreated":
            self.contexts.append(values["context"]["id"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(values["message"])
            self.post("Page.handleJavaScriptDialog", accept=True)
        elif method == "Page.loadEventFired":
            self.loaded = True

    def post(self, method, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to_browser, data):]
        return self.last_id

    def send(self, method, **parameters):
        number, deadline = self.post(method, **parameters), time.monotonic() + self.timeout
        while True:
            message = self.receive(deadline)
            if message.get("id") == number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']['message']}")
                return message["result"]
            if "method" in message:
                self.note(message)

    # ---- actions of a user

    def open(self, url):
        """Loads a page afresh, even if only the part after # differs."""
        for address in ("about:blank", url):
            self.forget()
            self.send("Page.navigate", url=address)
            deadline = time.monotonic() + self.timeout
            while not self.loaded:
                message = self.receive(deadline)
                if "method" in message:
                    self.note(message)
        self.settle()

    def evaluate(self, expression, **options):
        """The value of a JavaScript expression (a promise is awaited); contextId: in one of `contexts`, that of a frame."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, **options)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def settle(self):
        """Waits for two frames: then observers have run and their changes are drawn."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))))")

    def resize(self, width, height, scale=1):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def prefer(self, scheme, **others):
        """The system's color scheme; others: further media features, such as forced_colors="active"."""
        features = {"prefers-color-scheme": scheme, **{name.replace("_", "-"): value for name, value in others.items()}}
        self.send("Emulation.setEmulatedMedia", features=[{"name": name, "value": value} for name, value in features.items()])

    def middle(self, selector):
        """The middle of an element, which is first scrolled into view."""
        place = self.evaluate(f"""(() => {{ const node = document.querySelector({json.dumps(selector)}); if (!node) return null;
            node.scrollIntoView({{block: 'nearest', inline: 'nearest'}}); const r = node.getBoundingClientRect();
            return [r.left + r.width / 2, r.top + r.height / 2]; }})()""")
        if place is None:
            raise BrowserError(f"no element {selector}")
        return place

    def mouse(self, kind, x, y, button="none"):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=0 if button == "none" else 1)

    def hover(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.settle()

    def click_at(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, "left")
        self.mouse("mouseReleased", x, y, "left")
        self.settle()

    def click(self, selector):
        self.click_at(*self.middle(selector))

    def press(self, *keys):
        for key in keys:
            modifiers = 8 if key.startswith("Shift+") else 0
            key = key.removeprefix("Shift+")
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else None)
            values = {"key": key, "modifiers": modifiers, "windowsVirtualKeyCode": KEY_CODES.get(key, ord(key.upper()) if len(key) == 1 else 0)}
            self.send("Input.dispatchKeyEvent", type="keyDown", **values, **({"text": text} if text else {}))
            self.send("Input.dispatchKeyEvent", type="keyUp", **values)
        self.settle()

    def screenshot(self, path, whole=True):
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
