from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


def answered(port: int, path: str, sent: object = None, token: str = "") -> tuple[int, Any]:
    """The status and the content of a GET, or a POST if something is sent."""
    headers = {"X-Tidegate": "test", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if sent is None else json.dumps(sent).encode()
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  of this machine
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)
