"""Who may call the page: nobody who does not know its address, and no other web site even if it did.

| door | what it stops |
|---|---|
| the socket listens on 127.0.0.1 | other machines |
| the first part of the path is a random token | other users and programs of this machine, and every web page |
| `Host` must be 127.0.0.1 or localhost with our port | DNS rebinding: a name of somebody else's that leads here |
| `Origin` and `Sec-Fetch-Site` must be ours, and a change needs an `Origin` | requests sent by other sites' pages |
| a policy on every answer | frames, foreign scripts, and any connection to elsewhere |
| reports: another token, a sandbox without our origin | scripts in a report that came from somebody else |
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_ALWAYS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_CLOSED = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
PAGE_POLICY = _CLOSED + "script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:"
# A report is one file with its scripts inside. It runs as nobody: no origin, no connection, no way back to the page.
REPORT_POLICY = _CLOSED + (
    "sandbox allow-scripts allow-modals allow-downloads; script-src 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; worker-src blob:"
)


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The port and the two secrets of one server."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    report_token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def address(self) -> str:
        """What the user opens."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """How a browser may call this server."""
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"


class Doors:
    """An ASGI application in front of the page's own."""

    def __init__(self, app: App, keys: Keys) -> None:
        self.app, self.keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer 403 with one line."""
        if scope["type"] != "http":
            return
        reason = refusal(scope, self.keys)
        if reason:
            await _refuse(send, reason)
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *_headers(scope, self.keys)]}
            await send(message)

        await self.app(scope, receive, send_guarded)


def refusal(scope: Scope, keys: Keys) -> str:
    """Why a request is not let in; empty if it is."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    hosts, origins = headers.get("host", []), headers.get("origin", [])
    if len(hosts) != 1 or hosts[0] not in keys.hosts:
        return "This server answers to 127.0.0.1 and localhost only."
    if len(origins) > 1 or (origins and origins[0] != f"http://{hosts[0]}"):
        return "Another site may not call this server."
    if scope["method"] not in ("GET", "POST") or (scope["method"] == "POST" and not origins):
        return "This request does not come from the planner's page."
    first = _first(scope)
    token = any(secrets.compare_digest(first.encode(), key.encode()) for key in (keys.token, keys.report_token))
    if not token:
        return "This page needs the whole address that hush plan printed."
    if not _is_ours(scope, headers):
        return "Another site may not call this server."
    return ""


def _first(scope: Scope) -> str:
    """The first part of the path."""
    return str(scope["path"]).removeprefix("/").partition("/")[0]


def _is_ours(scope: Scope, headers: dict[str, list[str]]) -> bool:
    """Whether the browser says that our own page, or the user, asked for this; old browsers say nothing."""
    site = headers.get("sec-fetch-site", ["none"])
    if site in (["none"], ["same-origin"]):
        return True
    # A click on the printed address inside another page, such as a terminal in the browser: a whole new document.
    is_page = scope["method"] == "GET" and scope["path"].count("/") == 2 and scope["path"].endswith("/")
    return is_page and headers.get("sec-fetch-mode") == ["navigate"] and headers.get("sec-fetch-dest") == ["document"]


def _headers(scope: Scope, keys: Keys) -> list[tuple[bytes, bytes]]:
    is_report = _first(scope) == keys.report_token
    policy = {"content-security-policy": REPORT_POLICY if is_report else PAGE_POLICY}
    return [(name.encode(), value.encode()) for name, value in {**_ALWAYS, **policy}.items()]


async def _refuse(send: Send, reason: str) -> None:
    plain = {**_ALWAYS, "content-type": "text/plain; charset=utf-8", "content-security-policy": _CLOSED}
    headers = [(name.encode(), value.encode()) for name, value in plain.items()]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": f"{reason}\n".encode()})
