"""The commands of a runtime: `run`, and operator commands.

    COMMANDS = Commands(ORCHESTRATOR, "Tasks on MongoDB.", EXAMPLES, {ExitCode.OK: "done"})
    COMMANDS.run("an app", "its handlers end", "CONCURRENCY=20", ("", "--set concurrency=20"))
    COMMANDS.add("show", "Show one invocation.", ("mail-7", "mail-7 --json"), click.argument("key"))

A command calls the function of its name in `Runtime.commands`, which loads only then, so `--help`
loads no runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, final

import click

from tidegate.exit_codes import ExitCode
from tidegate_adapters.shell.options import ASKED, RUN, Option, Run, common, explained, logged, together, told
from tidegate_adapters.shell.runtimes import Runtime
from tidegate_adapters.shell.terminal import Terminal

TARGET: Final = "TARGET is path.py:attr or module:attr, where attr is {}, or a function without arguments, also an async one, that makes one."
"""Format it with the class name and its article."""


@final
class Commands:
    """The commands of a runtime, with their help; `text` is that of the group."""

    def __init__(self, runtime: Runtime, text: str, examples: Sequence[str], codes: Mapping[ExitCode, str]) -> None:
        self._runtime = runtime
        self.group = click.Group(runtime.section, help=explained(text, examples, codes))

    def _explained(self, name: str, text: str, examples: Sequence[str], codes: Mapping[ExitCode, str]) -> str:
        begin, targets = f"tidegate {self._runtime.section} {name}", self._runtime.examples
        shown = [f"{begin} {target} {more}".rstrip() for target, more in zip(targets, examples, strict=True)]
        return explained(text, shown, codes)

    def run(
        self,
        what: str,
        ends: str,
        variable: str,
        examples: Sequence[str],
        *options: Option,
        codes: Mapping[ExitCode, str] = RUN,
    ) -> None:
        """Add the command that runs an application until a signal.

        Args:
            what: What runs, with its article; then, after a blank line, more help.
            ends: What the first signal lets it finish.
            variable: An example environment variable, without its prefix.
            examples: Arguments after the target, for each of `Runtime.examples`.
            options: Its own options.
            codes: Exit codes and meanings.
        """
        article, _, more = what.partition("\n\n")
        text = (
            f"Run {article} until a signal ends it.\n\n"
            f"{more}SIGTERM or Ctrl-C lets {ends}; a second one waits for nothing that runs; a third ends it at once. Logs go to "
            "stderr. What it is told besides its code comes from --set, the environment "
            f"(TIDEGATE_{self._runtime.section.upper()}__{variable}), a file and the code, in this order: see tidegate config show."
        )

        def command(
            *,
            target: str,
            config: Path | None,
            settings: tuple[str, ...],
            dry_run: bool,
            log_format: Literal["text", "json"],
            log_level: str,
            is_json: bool,
            **given: Any,
        ) -> Run:
            def answer(terminal: Terminal) -> ExitCode:
                from tidegate_adapters.shell.application import Logs, Told, run_app, show_settings  # noqa: PLC0415  so that --help is quick

                which = Told(target, config, settings)
                if dry_run:
                    return show_settings(which, terminal, kinds=(self._runtime,), with_origin=True, is_json=is_json)
                logs = Logs(log_format, log_level.upper())
                return run_app(which, self._runtime, given, logs, terminal, is_json=is_json)

            return answer

        dry = click.option("--dry-run", is_flag=True, help="Show what it would be told, and connect to nothing.")
        self.group.command("run", help=self._explained("run", text, examples, codes))(
            together(told, *options, dry, logged, common)(command)
        )

    def add(
        self,
        name: str,
        text: str,
        examples: Sequence[str],
        *options: Option,
        codes: Mapping[ExitCode, str] = ASKED,
        function: str = "",
        check: Callable[[dict[str, Any]], str | None] = lambda _: None,
        **fixed: object,
    ) -> None:
        """Add a command about an application; arguments as for `run`.

        Its function has its name unless `function` is set, and gets `fixed` too. `check` may change
        the options and returns an error or None.
        """

        def command(
            ctx: click.Context,
            *,
            target: str,
            config: Path | None,
            settings: tuple[str, ...],
            is_json: bool,
            **given: Any,
        ) -> Run:
            if wrong := check(given):
                raise click.UsageError(wrong, ctx)

            def answer(terminal: Terminal) -> ExitCode:
                from tidegate_adapters.shell.application import Told, ask_app  # noqa: PLC0415  so that --help is quick

                which = Told(target, config, settings)
                return ask_app(which, self._runtime, function or name, {**given, **fixed}, terminal, is_json=is_json)

            return answer

        self.group.command(name, help=self._explained(name, text, examples, codes))(
            together(told, *options, common)(click.pass_context(command))
        )


def of_all(what: str) -> Callable[[dict[str, Any]], str | None]:
    """A check for bulk commands: requires filters or `--all`, and drops the option `is_all`.

    `what` names the items, in the plural.
    """

    def check(given: dict[str, Any]) -> str | None:
        is_all = given.pop("is_all")
        return f"say which {what} are meant, by filters or by --all" if is_all == any(given.values()) else None

    return check
