"""A real Chromium, driven through the DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from support.external_services import debian
from support.no_netlink import refuse_netlink
from support.server_fixture import DEADLINE_S

CHROMIUM = "chromium"
# The same engine without the windows of a browser: a page takes half of the processor time.
HEADLESS_SHELL = "chromium-headless-shell"
_ANSWER_S = 60.0
# Finds an element by a selector and its whole text, or its accessible name; hidden ones do not count.
_FIND = """
(selector, text) => {
  const name = (e) => (e.getAttribute("aria-label") ?? e.innerText ?? "").trim();
  const shown = (e) => e.getClientRects().length > 0;
  const all = [...document.querySelectorAll(selector)].filter(shown);
  return (text === null ? all : all.filter((e) => name(e) === text))[0] ?? null;
}
"""
# Lets events through to one element only, and notes whether the last kind of them came there. A page that
# moves after its elements are measured would otherwise get a click on another one.
_GUARD = """
(element, kinds) => {
  window.clickGuard?.remove();
  const guard = { reached: false };
  const check = (event) => {
    if (guard.reached) return;
    if (!event.composedPath().includes(element)) {
      event.stopImmediatePropagation();
      event.preventDefault();
    } else if (event.type === kinds.at(-1)) guard.reached = true;
  };
  for (const kind of kinds) window.addEventListener(kind, check, true);
  guard.remove = () => kinds.forEach((kind) => window.removeEventListener(kind, check, true));
  window.clickGuard = guard;
}
"""
# Messages that disappear by themselves, after less time than a loaded machine may stall.
_KEEP_TOASTS = """
window.pastToasts = new Set();
new MutationObserver(() => {
  for (const toast of document.getElementsByClassName("toast")) window.pastToasts.add(toast.textContent);
}).observe(document, {childList: true, subtree: true});
"""
# Of a page that the click has opened there is no guard.
_REACHED = "(() => { window.clickGuard?.remove(); return window.clickGuard?.reached ?? true; })()"


class BrowserError(AssertionError):
    """Something in the page is not as the test expects."""


class Browser:
    """A process of Chromium. Each page has a context of its own: no cookies or storage are shared."""

    def __init__(
        self, *, program: str = HEADLESS_SHELL, arguments: Sequence[str] = (), spare_process: bool = False
    ) -> None:
        """With `spare_process`, a process is ready for a page that may follow, as in users' browsers."""
        debian([program], commands=[program])
        unused = ["WebUIOmniboxPopup", "WebUIOmniboxAimPopup"]  # pages for the address field of each window
        if not spare_process:
            unused.append("SpareRendererForSitePerProcess")
        self._folder = tempfile.mkdtemp(prefix="chromium-")
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()

        def prepare_process() -> None:
            # The protocol's pipes are descriptors 3 and 4; first out of the way of each other.
            high = [os.dup2(fd, 100 + at) for at, fd in enumerate((to_browser, from_browser))]
            for at, fd in enumerate(high):
                os.dup2(fd, 3 + at)
            # Chromium breaks off requests when an interface changes, as when a container starts elsewhere.
            refuse_netlink()

        self._process = subprocess.Popen(
            [
                shutil.which(program) or program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
                f"--disable-features={','.join(unused)}",
                "--remote-debugging-pipe",
                f"--user-data-dir={self._folder}",
                *arguments,
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=prepare_process,
            close_fds=False,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._last_id = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        # Of each context, those of its pages.
        self._sessions: defaultdict[str, set[str]] = defaultdict(set)

    def send(self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None) -> Any:
        """Send a command and wait for its answer."""
        number = self._write(method, parameters, session)
        ends = time.monotonic() + _ANSWER_S
        while number not in self._answers:
            self._receive(ends, method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def _write(self, method: str, parameters: dict[str, Any] | None, session: str | None) -> int:
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        return self._last_id

    def _receive(self, ends: float, what: str) -> None:
        ready, _, _ = select.select([self._from], [], [], max(0.0, ends - time.monotonic()))
        data = os.read(self._from, 1 << 20) if ready else b""
        if not data:
            raise BrowserError(f"Chromium did not answer {what}.")
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.events.append(message)
                if message.get("params", {}).get("type") == "beforeunload":
                    # The page asks whether it may be left; until then it answers nothing.
                    self._write("Page.handleJavaScriptDialog", {"accept": True}, message["sessionId"])

    @contextlib.contextmanager
    def page(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Page]:
        """A page of a new context."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        try:
            yield self.new_page(context, width=width, height=height, dark=dark)
        finally:
            self.send("Target.disposeBrowserContext", {"browserContextId": context})
            gone = self._sessions.pop(context, set())
            self.events = [event for event in self.events if event.get("sessionId") not in gone]

    def attach(self, target: str, context: str) -> str:
        """Start to control a page; returns the session for its commands."""
        session: str = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self._sessions[context].add(session)
        return session

    def new_page(self, context: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        target = self.send("Target.createTarget", {"url": "about:blank", "browserContextId": context})
        page = Page(self, target["targetId"], context)
        page.resize(width, height, dark=dark)
        return page

    def close(self) -> None:
        with contextlib.suppress(OSError, BrowserError):
            self.send("Browser.close")
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            # Debian's command is a shell that waits for the program.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self._folder, ignore_errors=True)


class Page:
    """One page. What a user would do is done with real mouse and key events."""

    def __init__(self, browser: Browser, target: str, context: str) -> None:
        self._browser = browser
        self._target = target
        self.context = context
        self._session = browser.attach(target, context)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Page.addScriptToEvaluateOnNewDocument", {"source": _KEEP_TOASTS})

    def send(self, method: str, parameters: dict[str, Any] | None = None) -> Any:
        return self._browser.send(method, parameters, self._session)

    def next_page(self) -> Page:
        """The page that this one has opened, in a window of its own."""
        known = {self._target}
        ends = time.monotonic() + DEADLINE_S
        while time.monotonic() < ends:
            for target in self._browser.send("Target.getTargets")["targetInfos"]:
                is_page = target["type"] == "page" and target.get("browserContextId") == self.context
                if is_page and target["targetId"] not in known:
                    return Page(self._browser, target["targetId"], self.context)
            time.sleep(0.03)
        raise BrowserError("No window was opened.")

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", {"features": [theme]})

    def open(self, url: str) -> None:
        self.send("Page.navigate", {"url": url})
        self.wait_for("document.readyState === 'complete'")

    def reload(self) -> None:
        """Load the page again. Cheaper than `open` at another address: its process stays."""
        self.evaluate("window.isLeft = true")
        self.send("Page.reload")
        self.wait_for("window.isLeft === undefined && document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        answer = self.send(
            "Runtime.evaluate",
            {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True},
        )
        if "exceptionDetails" in answer:
            detail = answer["exceptionDetails"]
            raise BrowserError(detail.get("exception", {}).get("description") or detail["text"])
        return answer["result"].get("value")

    def wait_for(self, expression: str, deadline_s: float = DEADLINE_S) -> Any:
        """The value of an expression once it is true; fails with what the page shows."""
        ends = time.monotonic() + deadline_s
        while True:
            # While a page is loaded there is nothing to evaluate in.
            with contextlib.suppress(BrowserError):
                if value := self.evaluate(expression):
                    return value
            if time.monotonic() > ends:
                raise BrowserError(
                    f"{expression} is not true in this page:\n{self.text[:3000]}\n{self.problems()}"
                )
            time.sleep(0.03)

    def wait_for_text(self, text: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until the page shows a text, or has shown it as a message."""
        shown = "[document.body.innerText, ...(window.pastToasts ?? [])]"
        self.wait_for(f"{shown}.some((one) => one.includes({json.dumps(text)}))", deadline_s)

    @property
    def text(self) -> str:
        """What a user reads."""
        return str(self.evaluate("document.body.innerText"))

    @property
    def address(self) -> str:
        return str(self.evaluate("location.href"))

    def click(self, selector: str, text: str | None = None, *, modifiers: int = 0) -> None:
        """Click the element with this selector and text (or accessible name), once it can be clicked."""

        def click_at(x: float, y: float) -> None:
            for kind in ("mousePressed", "mouseReleased"):
                event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
                self.send("Input.dispatchMouseEvent", {**event, "modifiers": modifiers})

        kinds = ("pointerdown", "mousedown", "pointerup", "mouseup", "click")
        self._reach(selector, text, kinds, click_at)

    def _reach(
        self, selector: str, text: str | None, kinds: Sequence[str], act: Callable[[float, float], None]
    ) -> None:
        """Act at the place of an element, until the events of these kinds come to it."""
        found = f"({_FIND})({json.dumps(selector)}, {json.dumps(text)})"
        ends = time.monotonic() + DEADLINE_S
        while True:
            x, y = self.wait_for(
                f"""(() => {{ const e = {found}; if (e === null) return null;
                e.scrollIntoView({{block: "center", inline: "center"}});
                ({_GUARD})(e, {json.dumps(kinds)});
                const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"""
            )
            act(x, y)
            try:
                if self.evaluate(_REACHED):
                    return
            except BrowserError:
                return  # another page is opened
            if time.monotonic() > ends:
                at = self.evaluate(f"document.elementFromPoint({x}, {y})?.outerHTML.slice(0, 300)")
                raise BrowserError(f"{selector} {text or ''} cannot be reached. At its place is {at}")

    def drag(self, selector: str, start: float, end: float) -> None:
        """Drag over an element, from one part of its width to another."""
        left, top, width, height = self.wait_for(
            f"""(() => {{ const e = ({_FIND})({json.dumps(selector)}, null); if (e === null) return null;
            e.scrollIntoView({{block: "center"}});
            const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }})()"""
        )
        middle = top + height / 2
        for kind, at in (("Moved", start), ("Pressed", start), ("Moved", end), ("Released", end)):
            self.send(
                "Input.dispatchMouseEvent",
                {
                    "type": f"mouse{kind}",
                    "x": left + width * at,
                    "y": middle,
                    "button": "left" if start != end else "none",
                    "clickCount": int(kind != "Moved"),
                },
            )

    def double_click(self, selector: str) -> None:
        def click_at(x: float, y: float) -> None:
            for count in (1, 2):
                for kind in ("mousePressed", "mouseReleased"):
                    event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": count}
                    self.send("Input.dispatchMouseEvent", event)

        self._reach(selector, None, ("mousedown", "mouseup", "dblclick"), click_at)

    def fill(self, selector: str, text: str) -> None:
        """Click into a field, and replace its content by typing.

        In one step: between two, the page could be drawn again, or move the focus.
        """
        self.click(selector)
        self.wait_for(
            f"""(() => {{ const e = ({_FIND})({json.dumps(selector)}, null); if (e === null) return false;
            e.focus(); e.select();
            const type = {json.dumps(["insertText" if text else "delete", False, text])};
            return document.execCommand(...type) || e.value === {json.dumps(text)}; }})()"""
        )

    def insert(self, text: str) -> None:
        """Type where the focus is; a line break is the key Enter."""
        *lines, last = text.split("\n")
        for line in lines:
            self.send("Input.insertText", {"text": line})
            self.press("Enter")
        if last:
            self.send("Input.insertText", {"text": last})

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a select element, once it has this option."""
        self.wait_for(
            f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            if (![...e?.options ?? []].some((one) => one.value === {json.dumps(value)})) return false;
            e.value = {json.dumps(value)};
            e.dispatchEvent(new Event("change", {{bubbles: true}})); return true; }})()"""
        )

    def choose_files(self, selector: str, *files: Path) -> None:
        """Choose files in a file field, as its dialog would."""
        self.wait_for(f"document.querySelector({json.dumps(selector)}) !== null")
        field = self.send(
            "Runtime.evaluate", {"expression": f"document.querySelector({json.dumps(selector)})"}
        )
        found = {"files": [str(file) for file in files], "objectId": field["result"]["objectId"]}
        self.send("DOM.setFileInputFiles", found)

    def accept_downloads(self, folder: Path) -> None:
        """Save what the page downloads from now on to a folder."""
        behavior = {"behavior": "allow", "downloadPath": str(folder), "browserContextId": self.context}
        self._browser.send("Browser.setDownloadBehavior", behavior)

    def drop_files(self, selector: str, *files: Path) -> None:
        """Drag files from another program to an element, and drop them."""
        dragged = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}

        def drop_at(x: float, y: float) -> None:
            for kind in ("dragEnter", "dragOver", "drop"):
                self.send("Input.dispatchDragEvent", {"type": kind, "x": x, "y": y, "data": dragged})

        self._reach(selector, None, ("dragenter", "dragover", "drop"), drop_at)

    def press(self, key: str, *, modifiers: int = 0) -> None:
        arrows = {"ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "ArrowLeft": 37, "Home": 36, "End": 35}
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, **arrows}
        common = {
            "key": key,
            "modifiers": modifiers,
            "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper())),
        }
        if key == "a" and modifiers == 2:
            common["commands"] = ["selectAll"]
        down = {**common, "type": "rawKeyDown" if len(key) > 1 and key != "Enter" else "keyDown"}
        if key in (text := {"Enter": "\r", " ": " "}):
            down["text"] = text[key]
        self.send("Input.dispatchKeyEvent", down)
        self.send("Input.dispatchKeyEvent", {**common, "type": "keyUp"})

    def picture(self, file: Path, *, whole: bool = False) -> None:
        data = self.send("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})["data"]
        file.write_bytes(base64.b64decode(data))

    def request_times(self, pattern: str) -> list[float]:
        """When the page requested addresses that match, in seconds of the browser's clock."""
        self.evaluate("0")
        return [
            event["params"]["timestamp"]
            for event in self._browser.events
            if event.get("sessionId") == self._session
            and event["method"] == "Network.requestWillBeSent"
            and re.search(pattern, event["params"]["request"]["url"])
        ]

    def problems(self) -> list[str]:
        """Errors in the page's console and exceptions of its scripts, since the page was made."""
        # Answers to commands bring the events that came before them.
        self.evaluate("0")
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                detail = parameters["exceptionDetails"]
                found.append(detail.get("exception", {}).get("description") or detail["text"])
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                entry = parameters["entry"]
                found.append(f"{entry['text']} {entry.get('url', '')}")
        return found
