"""What a page that is served answers, as scripts ask it: with its token, its mark against other sites, and JSON both ways."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


def answered(port: int, path: str, sent: object = None, token: str = "") -> tuple[int, Any]:
    """The status and the content.

    Args:
        port: Where it is served on this machine.
        path: What is asked for.
        sent: What is sent, which makes it a POST; None for a GET.
        token: Of the page, if it has one.
    """
    headers = {"X-Tidegate": "test", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if sent is None else json.dumps(sent).encode()
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  of this machine
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)
