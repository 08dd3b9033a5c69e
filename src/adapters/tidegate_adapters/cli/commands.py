"""Commands, their options and help. A command returns a call, which `command_line.main` makes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import click
from click.core import ParameterSource

import tidegate
from tidegate.exit_codes import ExitCode
from tidegate_adapters.cli.orchestrator import orchestrator
from tidegate_adapters.cli.pipeline import pipeline
from tidegate_adapters.cli.reactive import reactive
from tidegate_adapters.cli.worker import worker
from tidegate_adapters.shell.options import (
    FILE,
    Option,
    Run,
    calling,
    common,
    duration,
    explained,
    kinds_of_faults,
    seed_of_runs,
    size,
    together,
    told,
)
from tidegate_adapters.shell.terminal import Terminal

if TYPE_CHECKING:
    from tidegate.sim.runs.exploration import Exploration

CLI: Final = "tidegate_adapters.cli"
SCOPES: Final = ("default", "thorough", "large")
ONLY: Final = {"designs": "design", "specimens": "specimen"}
"""Text, because `--help` must not load the simulator."""


class How(TypedDict):
    """The options of `explore` for one scenario: see `tidegate.sim.runs.exploration`."""

    runs: int | None
    seed: str | None
    policy: str
    pct_depth: int
    steps_max: int
    states_max: int
    depth_max: int | None
    memory_max: int | None
    require_sometimes: bool
    no_symmetry: bool
    faults: tuple[str, ...] | None
    faults_max: int | None


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    help=explained(
        "Model-check the coordination of services on Kafka and MongoDB.",
        ("tidegate explore", "tidegate explore tests/mine.py:takeover"),
        {ExitCode.OK: "as expected", ExitCode.USAGE: "wrong usage, or an extra is missing"},
    ),
)
@click.version_option(tidegate.__version__, prog_name="tidegate", message="%(prog)s %(version)s")
def cli() -> None: ...


@cli.command(
    help=explained(
        "Explore scenarios: does what is expected hold?\n\n"
        "A TARGET is the name of a scenario that ships (see: tidegate list), path.py:attr, or module:attr, where attr is "
        "a Scenario, a function without arguments that makes one or some, or a list of those; or tests/test_it.py::test_it, what "
        "that test explores. Without one, a sample of those that ship is "
        "explored: the first design and the first specimen of each family; -k, --only and --all select others. They are explored in their default scope: NAME@thorough and NAME@large are larger ones. Every counterexample is written as text, as JSON for tidegate replay, and as a page for a browser.",
        ("tidegate explore array_push_lock.late", "tidegate explore tests/mine.py:takeover --runs 5000 --seed 7"),
        {
            ExitCode.OK: "every expectation is met",
            ExitCode.NOT_MET: "an expectation is not met",
            ExitCode.USAGE: "wrong usage, or a target that cannot be loaded",
            ExitCode.RAISED: "a scenario raised an error outside of its programs, or worker processes died",
            ExitCode.DIVERGED: "a program is nondeterministic",
            ExitCode.NOTHING_SELECTED: "nothing is selected",
            ExitCode.INCONCLUSIVE: "inconclusive: a bound, random runs, or what --require-sometimes asks for",
            ExitCode.INTERRUPTED: "interrupted; what was found until then is reported",
            ExitCode.TERMINATED: "terminated, likewise",
        },
    )
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("-k", "expression", metavar="EXPR", default="", help="Only scenarios whose name contains EXPR.")
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default=SCOPES[0],
    show_default=True,
    help="How large the scenarios are that ship; without a TARGET, those that have that scope.",
)
@click.option(
    "--only", type=click.Choice(list(ONLY)), help="Only designs, which are meant to be right, or only specimens."
)
@click.option("--all", "is_all", is_flag=True, help="Every scenario that ships: about two minutes.")
@click.option(
    "--runs", type=click.IntRange(1, 1_000_000), metavar="N", help="Make N random runs, not an exhaustive search."
)
@click.option(
    "--seed", callback=seed_of_runs, metavar="S", envvar="TIDEGATE_SEED", show_envvar=True, help="Of the random runs."
)
@click.option(
    "--policy",
    type=click.Choice(["random", "pct", "swarm", "portfolio"]),
    default="portfolio",
    show_default=True,
    help="Picks the steps of the random runs; portfolio: all of them in turns.",
)
@click.option(
    "--pct-depth",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="With --policy pct: how many steps in one order make the bug.",
)
@click.option(
    "--max-steps",
    "steps_max",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="The length of a random run.",
)
@click.option(
    "--max-states",
    "states_max",
    type=click.IntRange(1),
    default=3_000_000,
    show_default=True,
    help="Stop an exhaustive search after this many states.",
)
@click.option(
    "--require-sometimes",
    is_flag=True,
    help="Exit code 6, and not only a warning, if a goal is never reached, a fault that may strike never does, or a law is never asked.",
)
@click.option("--no-symmetry", is_flag=True, help="Keep interchangeable processes apart.")
@click.option(
    "--max-depth",
    "depth_max",
    type=click.IntRange(0),
    metavar="N",
    help="And after this many steps from the beginning.",
)
@click.option(
    "--max-memory", "memory_max", callback=size, metavar="SIZE", help="And when its states take so much, such as 500MB."
)
@click.option(
    "--faults",
    callback=kinds_of_faults,
    metavar="KINDS",
    default="all",
    show_default=True,
    help="Only these may strike, with commas between, such as crash_before,lost_reply; or none, or all.",
)
@click.option(
    "--max-faults",
    "faults_max",
    type=click.IntRange(0),
    metavar="N",
    help="A run may have N faults, all kinds together, where the scenario allows more.",
)
@click.option("--timeout", callback=duration, metavar="TIME", help="Stop a scenario after this time, such as 60s.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default=".tidegate/failures",
    show_default=True,
    help="Where counterexamples go.",
)
@click.option("--no-store", is_flag=True, help="Write no counterexamples.")
@click.option(
    "--junit-xml", type=click.Path(path_type=Path), metavar="FILE", help="Write what was found as JUnit's XML, too."
)
@click.option(
    "--dot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the states of the one TARGET as DOT."
)
@click.option("--no-shrink", is_flag=True, help="Leave what random runs find as long as it is.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 1_000),
    metavar="N",
    default=1,
    show_default=True,
    help="Explore in N processes: scenarios side by side, or the random runs of each.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@common
@click.pass_context
def explore(
    ctx: click.Context,
    *,
    targets: tuple[str, ...],
    expression: str,
    scope: str,
    only: str | None,
    is_all: bool,
    timeout: float | None,
    out: Path,
    no_store: bool,
    junit_xml: Path | None,
    dot: Path | None,
    no_shrink: bool,
    jobs: int,
    quiet: bool,
    is_json: bool,
    **how: Unpack[How],
) -> Run:
    runs, policy = how["runs"], how["policy"]
    given = {name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    for name, option, fits, why in (
        ("seed", "--seed", runs, "an exhaustive search draws nothing; add --runs N"),
        ("policy", "--policy", runs, "an exhaustive search takes every step; add --runs N"),
        ("pct_depth", "--pct-depth", policy == "pct", "it is the depth of pct; add --policy pct"),
        ("steps_max", "--max-steps", runs, "it bounds random runs; add --runs N"),
        ("no_shrink", "--no-shrink", runs, "an exhaustive search finds a shortest run; add --runs N"),
        ("states_max", "--max-states", not runs, "it bounds an exhaustive search; leave out --runs"),
        ("require_sometimes", "--require-sometimes", not runs, "random runs prove nothing; leave out --runs"),
        ("no_symmetry", "--no-symmetry", not runs, "random runs leave nothing out"),
        ("depth_max", "--max-depth", not runs, "it bounds an exhaustive search; leave out --runs"),
        ("memory_max", "--max-memory", not runs, "it bounds an exhaustive search; leave out --runs"),
        ("out", "--out", not no_store, "nothing is written with --no-store"),
        ("is_all", "--all", not targets, "it means all that ship; leave out the TARGET"),
    ):
        if name in given and not fits:
            raise click.UsageError(f"{option} does not fit: {why}", ctx)

    def run(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.cli.exploring import (  # noqa: PLC0415  keeps --help quick
            Settings,
            beginning,
            draw_states,
            explore_all,
        )
        from tidegate_adapters.exploring.counterexamples import Store  # noqa: PLC0415
        from tidegate_adapters.exploring.targets import select  # noqa: PLC0415

        is_sample = not (is_all or expression or only)
        selected = list(
            select(targets, expression, scope=scope, only=ONLY[only] if only else None, is_sample=is_sample)
        )
        if not (targets or quiet):
            terminal.tell(beginning(len(selected), is_sample=is_sample))
        settings = Settings(exploration(how), timeout, shrinks=not no_shrink, jobs=jobs, junit_xml=junit_xml)
        store = None if no_store else Store(out)
        if dot is not None:
            draw_states(selected, settings.how, dot)
        return explore_all(selected, settings, store, terminal, is_json=is_json, quiet=quiet)

    return run


def exploration(how: How) -> Exploration:
    from tidegate.sim.runs.exploration import Exploration  # noqa: PLC0415  keeps --help quick
    from tidegate.sim.runs.policies import policies  # noqa: PLC0415
    from tidegate.sim.search.search import Reductions  # noqa: PLC0415
    from tidegate.sim.world.faults import Fault  # noqa: PLC0415

    return Exploration(
        states_max=how["states_max"],
        depth_max=how["depth_max"],
        memory_max=how["memory_max"],
        reductions=Reductions(symmetry=not how["no_symmetry"]),
        require_sometimes=how["require_sometimes"],
        runs=how["runs"] or 0,
        steps_max=how["steps_max"],
        seed=how["seed"],
        policies=policies(how["policy"], how["pct_depth"]),
        faults=None if how["faults"] is None else tuple(map(Fault, how["faults"])),
        faults_max=how["faults_max"],
    )


@cli.command(
    help=explained(
        "Replay a recorded run, step by step.\n\n"
        "Its decisions are taken again, and what they change is compared. "
        "TRACE is a .json or .html file of tidegate explore. TARGET is the scenario to replay it in; without one it is "
        "the scenario that the trace names. TRACE may also be the recording of a run of production; then TARGET is a "
        "function that makes a run of the program, or the ConsumerRules of a Kafka worker, and the run is executed again.",
        (
            "tidegate replay .tidegate/failures/array_push_lock.late.json --until 12 --continue",
            "tidegate replay claim-17.jsonl shop/jobs.py:claim",
        ),
        {
            ExitCode.OK: "reproduced as recorded; with --continue: no law is broken beyond",
            ExitCode.NOT_MET: "with --continue: a law is broken beyond",
            ExitCode.USAGE: "wrong usage, or a trace or target that cannot be read",
            ExitCode.RAISED: "the scenario raised an error outside of its programs",
            ExitCode.DIVERGED: "the scenario does something else than was recorded",
            ExitCode.INCONCLUSIVE: "with --continue: a bound was reached",
        },
    )
)
@click.argument("trace", type=click.Path(path_type=Path))
@click.argument("target", required=False)
@click.option("--until", type=click.IntRange(0), metavar="STEP", help="Stop after this step, and show the state.")
@click.option(
    "--step", "is_stepwise", is_flag=True, help="Show each step with all that it changes; on a terminal, wait."
)
@click.option(
    "--continue", "goes_on", is_flag=True, help="Explore on from there, or from the step before a divergence."
)
@click.option(
    "--max-states",
    "states_max",
    type=click.IntRange(1),
    default=200_000,
    show_default=True,
    help="With --continue: stop after this many states.",
)
@click.option(
    "--timeout", callback=duration, metavar="TIME", help="With --continue: stop after this time, such as 60s."
)
@common
@click.pass_context
def replay(
    ctx: click.Context,
    *,
    trace: Path,
    target: str | None,
    until: int | None,
    is_stepwise: bool,
    goes_on: bool,
    states_max: int,
    timeout: float | None,
    is_json: bool,
) -> Run:
    given = {name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    for name, option, fits, why in (
        ("states_max", "--max-states", goes_on, "it bounds what is explored beyond; add --continue"),
        ("timeout", "--timeout", goes_on, "it bounds what is explored beyond; add --continue"),
        ("is_stepwise", "--step", not is_json and not goes_on, "it shows steps to people; leave out the other one"),
    ):
        if name in given and not fits:
            raise click.UsageError(f"{option} does not fit: {why}", ctx)

    def run(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.cli.replaying import How, replay_one  # noqa: PLC0415  keeps --help quick

        how = How(until, is_stepwise, goes_on, states_max, timeout)
        return replay_one(trace, target, how, terminal, is_json=is_json)

    return run


@cli.group(
    help=explained(
        "Show a stored trace, write it in another form, or compare it.",
        ("tidegate trace show run.json", "tidegate trace convert run.json --format perfetto -o run.perfetto.json"),
        {ExitCode.OK: "done", ExitCode.USAGE: "wrong usage, or a trace that cannot be read"},
    )
)
def trace() -> None: ...


OUT: Final = click.option("-o", "--out", type=FILE, metavar="OUT", help="Where to; compressed if it ends with .gz.")
TRACE: Final = click.argument("path", type=FILE, metavar="FILE")
FORMATS: Final = ("text", "json", "mermaid", "perfetto", "itf", "dot", "html")


def form(**default: Any) -> Option:
    text = "In which form; dot: what happens before what."
    return click.option("--format", "form", type=click.Choice(FORMATS), help=text, **default)


TRACE_CODES: Final = {ExitCode.OK: "written", ExitCode.USAGE: "wrong usage, or a trace that cannot be read"}

trace.command(
    "show",
    help=explained(
        "Show a trace: one line a step, or in another form.",
        (
            "tidegate trace show .tidegate/failures/array_push_lock.late.json",
            "tidegate trace show run.html --format mermaid",
        ),
        TRACE_CODES,
    ),
)(together(TRACE, form(default="text", show_default=True), OUT, common)(calling(f"{CLI}.traces:show")))
trace.command(
    "convert",
    help=explained(
        "Write a trace in another form.",
        (
            "tidegate trace convert run.json --format perfetto -o run.perfetto.json",
            "tidegate trace convert run.json --format json -o run.json.gz",
        ),
        TRACE_CODES,
    ),
)(together(TRACE, form(required=True), OUT, common)(calling(f"{CLI}.traces:show")))
trace.command(
    "diff",
    help=explained(
        "Tell where two runs part.\n\nWithout OTHER it is compared to the nearest passing run, which stands beside it.",
        ("tidegate trace diff failing.json", "tidegate trace diff yesterday.json today.json"),
        {
            ExitCode.OK: "the difference is printed",
            ExitCode.USAGE: "wrong usage, or a trace that cannot be read, or another beginning",
        },
    ),
)(together(TRACE, click.argument("other", type=FILE, required=False), common)(calling(f"{CLI}.traces:diff")))
trace.command(
    "extract",
    help=explained(
        "Take the trace out of a page.",
        ("tidegate trace extract run.html", "tidegate trace extract run.html -o run.json.gz"),
        TRACE_CODES,
    ),
)(together(TRACE, OUT, common)(calling(f"{CLI}.traces:extract")))


@cli.command(
    help=explained(
        "Shrink a recorded counterexample to fewer steps, faults and processes.\n\n"
        "What is left breaks the same law and is a real run. It is written beside the file as NAME.shrunk.json, .txt and "
        ".html. TARGET is the scenario that it belongs to; without one it is the scenario that the trace names.",
        ("tidegate shrink .tidegate/failures/transition.not_read_again.json", "tidegate shrink old.json --budget 5000"),
        {
            ExitCode.OK: "shrunk, or as small as it was",
            ExitCode.USAGE: "wrong usage, a trace or target that cannot be read, or a run that breaks no law",
            ExitCode.RAISED: "the scenario raised an error outside of its programs",
            ExitCode.DIVERGED: "the scenario does something else than was recorded",
        },
    )
)
@click.argument("trace", type=click.Path(path_type=Path))
@click.argument("target", required=False)
@click.option(
    "--budget", type=click.IntRange(0), metavar="N", default=2_000, show_default=True, help="Run at most N candidates."
)
@click.option(
    "--timeout", callback=duration, metavar="TIME", default="10s", show_default=True, help="Stop after this time."
)
@click.option("--no-store", is_flag=True, help="Write no files.")
@common
def shrink(*, trace: Path, target: str | None, budget: int, timeout: float, no_store: bool, is_json: bool) -> Run:
    def run(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.cli.shrinking import shrink_one  # noqa: PLC0415  keeps --help quick

        return shrink_one(
            trace, target, budget=budget, seconds=timeout, store=not no_store, terminal=terminal, is_json=is_json
        )

    return run


@cli.command(
    "check-determinism",
    help=explained(
        "Check that programs always decide alike.\n\n"
        "Every program of the scenarios is run along the same random schedules again: in this process, and in fresh ones "
        "with other hash seeds. The first effect that differs is named, with its line and the likely cause: a clock, a "
        "random number, the order of a set, or a global.",
        ("tidegate check-determinism tests/mine.py:takeover", "tidegate check-determinism transition --runs 100"),
        {
            ExitCode.OK: "every decision was the same",
            ExitCode.USAGE: "wrong usage, or a target that cannot be loaded",
            ExitCode.RAISED: "a scenario raised an error outside of its programs",
            ExitCode.DIVERGED: "a program decides otherwise when it runs again",
        },
    ),
)
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option("--runs", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many schedules.")
@common
def check_determinism(*, targets: tuple[str, ...], runs: int, is_json: bool) -> Run:
    def run(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.cli.determinism import check_all  # noqa: PLC0415  keeps --help quick
        from tidegate_adapters.exploring.targets import select  # noqa: PLC0415

        return check_all(select(targets), runs, terminal, is_json=is_json)

    return run


cli.command(
    "list",
    help=explained(
        "List scenarios: name, kind, expectation, scopes, summary.\n\n"
        "Without a TARGET, those that ship. A TARGET is one that explore takes, or a file: then every scenario in it, and of "
        "every function without arguments whose annotation says that it makes a Scenario, or some.",
        ("tidegate list tests/mine.py", "tidegate list --json | jq -r '.scenarios[].name'"),
        {
            ExitCode.OK: "listed",
            ExitCode.USAGE: "wrong usage, or a target that cannot be loaded",
            ExitCode.RAISED: "a function that makes a scenario raised an error",
        },
    ),
)(together(click.argument("texts", nargs=-1, metavar="[TARGET]..."), common)(calling(f"{CLI}.listing:list_all")))
cli.command(
    "diagram",
    help=explained(
        "Draw a table of transitions as a Mermaid diagram.",
        ("tidegate diagram invocation", "tidegate diagram invocation > invocation.mmd"),
        {ExitCode.OK: "drawn", ExitCode.USAGE: "wrong usage"},
    ),
)(together(click.argument("name", type=click.Choice(["invocation"])), common)(calling(f"{CLI}.listing:draw")))
for group in (worker, reactive, orchestrator, pipeline):
    cli.add_command(group)


@cli.group(
    help=explained(
        "Tell what a worker, or an app of tasks, is told, and by whom.",
        ("tidegate config show shop.orders:worker --origin", "tidegate config show orders.py:worker --json"),
        {ExitCode.OK: "shown", ExitCode.USAGE: "wrong usage or configuration, or a worker that cannot be loaded"},
    )
)
def config() -> None: ...


@config.command(
    "show",
    help=explained(
        "Show each setting of a worker or an app; of a secret that there is one.\n\n"
        "Arguments win over the environment, that over a file, and that over the code. TARGET is one that tidegate worker "
        "run, tidegate reactive run, tidegate orchestrator run or tidegate pipeline run takes.",
        (
            "tidegate config show shop.orders:worker --origin",
            "TIDEGATE_WORKER__GROUP=orders-2 tidegate config show orders.py:worker --set concurrency=8",
        ),
        {
            ExitCode.OK: "shown",
            ExitCode.USAGE: "wrong usage or configuration, or a worker that cannot be loaded",
            ExitCode.RAISED: "the code that makes the worker raised an error",
        },
    ),
)
@told
@click.option("--origin", is_flag=True, help="Tell where each value is from.")
@common
def config_show(*, target: str, config: Path | None, settings: tuple[str, ...], origin: bool, is_json: bool) -> Run:
    def run(terminal: Terminal) -> ExitCode:
        from tidegate_adapters.shell.application import Told, show_settings  # noqa: PLC0415  keeps --help quick

        return show_settings(Told(target, config, settings), terminal, with_origin=origin, is_json=is_json)

    return run


cli.command(
    "doctor",
    help=explained(
        "Tell what is here, what is missing and how it comes, and whether the servers answer.\n\n"
        "The servers are those of TIDEGATE_MONGODB_URI and TIDEGATE_KAFKA_BOOTSTRAP; nothing of these is shown.",
        ("tidegate doctor", "tidegate doctor --json | jq .checks"),
        {
            ExitCode.OK: "what was asked for is there",
            ExitCode.NOT_MET: "a server that is named does not answer",
            ExitCode.USAGE: "wrong usage",
        },
    ),
)(together(common)(calling(f"{CLI}.doctor:check")))


@cli.command(
    help=explained(
        "Print what completes commands and options in a shell.",
        ('eval "$(tidegate completion bash)"', "tidegate completion fish > ~/.config/fish/completions/tidegate.fish"),
        {ExitCode.OK: "printed", ExitCode.USAGE: "wrong usage"},
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def completion(*, shell: str, is_json: bool) -> Run:
    def run(terminal: Terminal) -> ExitCode:
        from click.shell_completion import get_completion_class  # noqa: PLC0415  keeps --help quick

        made = get_completion_class(shell)
        assert made is not None, "one of those above"
        script = (made.source_template % made(cli, {}, "tidegate", "_TIDEGATE_COMPLETE").source_vars()).strip()
        if is_json:
            terminal.answer({"schema": "tidegate/completion@1", "shell": shell, "script": script, "ok": True})
        else:
            terminal.say(script)
        return ExitCode.OK

    return run
