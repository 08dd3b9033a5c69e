"""Prints a payload's peak memory in MiB: `payload_memory.py URI DATABASE MIB sync|async`."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tidegate_adapters.kit.payloads import AsyncPayloads, Payloads
from tidegate_adapters.mongo import connect, connect_async

_, URI, DATABASE, SIZE, KIND = sys.argv
MIB = 1024 * 1024


def mebibytes(digest: hashlib._Hash) -> Iterator[bytes]:
    """Incompressible pieces, never in memory as a whole."""
    draw = Random(1)
    for _ in range(int(SIZE)):
        piece = draw.randbytes(MIB)
        digest.update(piece)
        yield piece


def memory_mib(line: str) -> float:
    """Now (VmRSS) or at most since the start (VmHWM); `getrusage` counts the parent's."""
    status = dict(each.split(":") for each in Path("/proc/self/status").read_text().splitlines())
    return int(status[line].split()[0]) / 1024


def streams() -> float:
    before, after = hashlib.sha256(), hashlib.sha256()
    with connect(URI) as client:
        payloads = Payloads(client, DATABASE)
        start = memory_mib("VmRSS")
        payloads.put("large", mebibytes(before))
        for piece in payloads.open("large"):
            after.update(piece)
    assert before.digest() == after.digest()
    return start


async def streams_async() -> float:
    before, after = hashlib.sha256(), hashlib.sha256()
    async with await connect_async(URI) as client:
        payloads = AsyncPayloads(client, DATABASE, codec="none")
        start = memory_mib("VmRSS")
        await payloads.put("large", mebibytes(before))
        async for piece in await payloads.open("large"):
            after.update(piece)
    assert before.digest() == after.digest()
    return start


start = streams() if KIND == "sync" else asyncio.run(streams_async())
print(memory_mib("VmHWM") - start)
