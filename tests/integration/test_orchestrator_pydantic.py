from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass

from tidegate.model.errors import Misuse
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.orchestrator import Orchestrator
from tidegate_adapters.runtime.serialization import codec_of


class Mail(BaseModel):
    to: str
    at: datetime | None = None
    copies: int = Field(default=1, ge=1)


@dataclass
class Page:
    number: int


AT = datetime(2026, 11, 26, tzinfo=UTC)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Mail, Mail(to="ada", at=AT, copies=2)),
        (list[Mail], [Mail(to="ada"), Mail(to="bob", at=AT)]),
        (dict[str, Mail | None], {"a": Mail(to="ada"), "b": None}),
        (Page, Page(7)),
    ],
    ids=["a model", "a list", "a dict", "a dataclass"],
)
def test_what_is_written_is_read_as_it_was(annotation: Any, value: object) -> None:
    codec = codec_of(annotation)
    text = codec.text(value, "it")
    assert codec.value(text, "it") == value
    assert codec.text(codec.value(text, "it"), "it") == text


@pytest.mark.parametrize(
    "value", [{"to": 7}, Mail.model_construct(to="ada", copies=0), "ada"], ids=["a type", "a rule", "text"]
)
def test_what_is_no_such_model_is_refused_and_not_shown(value: object) -> None:
    with pytest.raises(Misuse, match="ValidationError") as told:
        codec_of(Mail).text(value, "the argument mail of send")
    assert "ada" not in str(told.value)


def test_a_task_is_called_with_models_and_returns_one() -> None:
    given: list[object] = []

    async def run() -> None:
        app = Orchestrator(Embedded(), database="x")

        @app.task()
        async def send(mail: Mail, pages: list[Page]) -> Mail:
            given.append((mail, pages))
            return mail.model_copy(update={"copies": len(pages)})

        handle = await send.enqueue(Mail(to="ada", at=AT), pages=[Page(1), Page(2)])
        with pytest.raises(Misuse):
            _ = await send.enqueue("ada", [])
        serving = asyncio.create_task(app.serve())
        assert await handle.result() == Mail(to="ada", at=AT, copies=2)
        app.stop()
        await serving

    asyncio.run(run())
    assert given == [(Mail(to="ada", at=AT), [Page(1), Page(2)])]
