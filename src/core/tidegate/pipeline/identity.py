"""Keys that are the same whenever the same output, or the same task, comes again.

After a crash or a rebalance a record is processed again. A sink recognizes an output that it has
already if the key of the output names where it is from, and nothing that depends on the run: not
the attempt, the worker, the window or the order in which tasks ended.

    key      topic / partition / first source offset / task id / hook / sink / position
    task id  given by the user; `stable_id` makes one from the parts that identify the work

A topic that was deleted and made anew has the same name, partitions and offsets. Where the client
can tell them apart, `topic` is the name with the topic's id; else its keys are those of the old one.

Laws
    ID1  Keys of different outputs differ: in any of their parts, or in none.
    ID2  A key is at most `KEY_MAX` characters long, printable ASCII without blanks.
    ID3  Ids of different parts differ, also where the parts joined are equal: ("a", "bc") and
         ("ab", "c").
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Final

from tidegate.consumer.offsets.watermark import OFFSET_MAX
from tidegate.model.errors import Misuse, shown
from tidegate.model.values import check_int, check_name, check_type
from tidegate.pipeline.effects import Hook

_PLAIN: Final = re.compile(r"[A-Za-z0-9._~-]*")


@lru_cache(1_000)
def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    characters = (each if _PLAIN.fullmatch(each) else each.encode("utf-8", "surrogatepass") for each in text)
    return "".join(each if isinstance(each, str) else "".join(f"%{byte:02X}" for byte in each) for each in characters)


KEY_MAX: Final = 240
"""Characters. Redis, PostgreSQL and MongoDB index much longer keys; HTTP proxies may not pass them."""
_ID_HEX: Final = 16


def stable_id(prefix: str, *parts: str | bytes | int) -> str:
    """An id for the task that these parts identify; the same parts make the same id.

    Args:
        prefix: The beginning of the id, for people.
        parts: What identifies the task, for example a customer and a day.

    Returns:
        The prefix, a hyphen and 16 hexadecimal digits of the SHA-256 of the parts.

    Raises:
        Misuse: There are no parts, or one is neither text, bytes nor an integer.
    """
    check_name(prefix, "the prefix of an id")
    if not parts:
        raise Misuse("an id of no parts", why="all such ids would be equal", todo="pass what identifies the task")
    digest = sha256()
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, (str, bytes, int)):
            raise Misuse(f"{shown(part)} cannot be a part of an id", todo="pass text, bytes or an integer")
        data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        digest.update(f"{type(part).__name__} {len(data)}:".encode() + data)
    return f"{prefix}-{digest.hexdigest()[:_ID_HEX]}"


def output_key(  # noqa: PLR0917  they are its parts
    topic: str, partition: int, offset: int, task: str | None, hook: Hook, sink: str, position: int
) -> str:
    """The key by which a sink recognizes an output.

    Args:
        topic: The topic of the source record.
        partition: Its partition.
        offset: Its offset; the first of them for a task of several records.
        task: The id of the task; None for outputs of a record or a window.
        hook: The hook that returned the output.
        sink: The name of the sink.
        position: The position in what the hook returned.

    Raises:
        Misuse: An argument has the wrong type or is out of range.
    """
    check_name(topic, "a topic")
    check_int(partition, "a partition", 0)
    check_int(offset, "an offset", 0, OFFSET_MAX)
    check_type(task, (str, type(None)), "the id of a task")
    check_type(hook, Hook, "a hook")
    check_name(sink, "a sink")
    check_int(position, "a position", 0)
    of_task = "" if task is None else f"={_quoted(task)}"
    key = f"{_quoted(topic)}/{partition}/{offset}/{of_task}/{hook.value}/{_quoted(sink)}/{position}"
    if len(key) <= KEY_MAX:
        return key
    return f"{partition}/{offset}/{hook}/{position}/{sha256(key.encode()).hexdigest()}"
