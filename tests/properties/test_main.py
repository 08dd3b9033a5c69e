from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import NoReturn

import pytest

from tidegate import __main__ as command
from tidegate.exit_codes import ExitCode


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    assert command.main([]) == ExitCode.USAGE
    assert "pip install 'tidegate[cli]'" in capsys.readouterr().err


def command_line(monkeypatch: pytest.MonkeyPatch, main: object) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _: object())
    monkeypatch.setattr(command, "import_module", lambda _: SimpleNamespace(main=main))


def test_it_answers_what_the_command_line_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Sequence[str] | None] = []

    def answers(argv: Sequence[str] | None) -> int:
        given.append(argv)
        return ExitCode.USAGE

    command_line(monkeypatch, answers)
    assert command.main(["list"]) == ExitCode.USAGE
    assert given == [["list"]]


def test_an_interruption_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: Sequence[str] | None) -> NoReturn:
        raise KeyboardInterrupt

    command_line(monkeypatch, interrupted)
    assert command.main() == ExitCode.INTERRUPTED
    assert "interrupted" in capsys.readouterr().err
