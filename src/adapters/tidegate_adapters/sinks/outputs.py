"""What is delivered to a sink: outputs, the operations that they ask for, and the keys that they have.

    Output("hits", value)                          one more row, document, line, message or request
    Output("hits", value, op=Upsert("id"))         the row or document with this id, new or changed
    Output("hits", value, op=Update({"id": 7}))    the row or document with this id, if there is one
    Output("hits", op=Delete({"id": 7}))
    Output("hits", {"n": 3}, op=Statement("add"))  a statement that the sink was given by this name

A sink says which operations it has; a pipeline refuses others when it hears of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.errors import Misuse, shown, typed
from tidegate.model.values import check_name, check_type

NO_HEADERS: Final[Mapping[str, str | bytes]] = MappingProxyType({})


@final
@attrs.frozen
class Insert:
    """Add the value."""


@final
@attrs.frozen(init=False)
class Upsert:
    """Insert the value, or change what has the same values in these fields.

    Attributes:
        on: The fields, at least one.
    """

    on: tuple[str, ...]

    def __init__(self, *on: str) -> None:
        if not on:
            raise Misuse("an upsert on no field", why="it would change any row", todo='write Upsert("id")')
        for each in on:
            check_name(each, "a field")
        self.__attrs_init__(on)


def _check_where(_: object, __: object, where: object) -> None:
    if not isinstance(where, Mapping) or not where:
        raise Misuse(
            f"where must be a mapping that is not empty, got {typed(where)}",
            why="an update or a delete without a condition would be for all rows",
            todo='write where={"id": 7}',
        )


@final
@attrs.frozen
class Update:
    """Change what matches; nothing if nothing does. The value has the fields to set.

    Attributes:
        where: Fields and their values, at least one.
    """

    where: Mapping[str, object] = attrs.field(validator=_check_where, repr=False)


@final
@attrs.frozen
class Delete:
    """Remove what matches; nothing if nothing does.

    Attributes:
        where: Fields and their values, at least one.
    """

    where: Mapping[str, object] = attrs.field(validator=_check_where, repr=False)


@final
@attrs.frozen
class Statement:
    """Run a statement that the sink was given, with the value as its parameters.

    Attributes:
        name: Its name.
    """

    name: str


Operation: TypeAlias = Insert | Upsert | Update | Delete | Statement
INSERT: Final = Insert()


@final
@attrs.frozen
class Output:
    """What a hook returns for a sink.

    Attributes:
        sink: The name of the sink.
        value: What is delivered: the fields of a row or document, or anything that JSON can hold, for
            sinks that take lines, messages and requests. It is never shown.
        op: The operation.
        to: Where in the sink: a table, collection, topic, file or path; None for the sink's own.
        key: The key of a Kafka record, or of a Redis value.
        headers: Headers of a Kafka record or of a request.
        ttl: After which time a Redis value expires; None for never.
    """

    sink: str
    value: object = attrs.field(default=None, repr=False)
    op: Operation = INSERT
    to: str | None = None
    key: str | bytes | None = attrs.field(default=None, repr=False)
    headers: Mapping[str, str | bytes] = attrs.field(default=NO_HEADERS, repr=False)
    ttl: timedelta | None = None

    def __attrs_post_init__(self) -> None:
        check_name(self.sink, "a sink")
        if self.op is not INSERT and not isinstance(self.op, (Insert, Upsert, Update, Delete, Statement)):
            raise Misuse(f"op must be an operation, got {shown(self.op)}", todo='write op=Upsert("id")')
        if self.to is not None:
            check_name(self.to, "the place in a sink, to=,")
        if self.key is not None:
            check_type(self.key, (str, bytes, type(None)), "the key of an output")
        if self.headers is not NO_HEADERS:
            check_type(self.headers, Mapping, "the headers of an output")
        if self.ttl is not None:
            check_type(self.ttl, (timedelta, type(None)), "ttl")
            if self.ttl <= timedelta(0):
                raise Misuse(
                    f"ttl must be a positive timedelta, got {shown(self.ttl)}", todo="write timedelta(hours=1)"
                )


@final
@attrs.frozen
class Delivery:
    """An output on its way to a sink.

    Attributes:
        key: The same whenever the same output comes again (`tidegate.pipeline.identity`). A sink that
            can recognize it applies an output once.
        output: The output.
    """

    key: str
    output: Output
