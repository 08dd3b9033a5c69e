"""`tidegate replay`: repeats the recorded decisions in today's scenario."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Final, final

import attrs

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse
from tidegate.model.patches import PatchOperation, to_json
from tidegate.sim.program.recording import is_recording
from tidegate.sim.runs.replay import Diverged, Reproduced, explored_on, followed
from tidegate.sim.trace.rendering import number_of, render, sentence, state_lines
from tidegate.sim.trace.trace import Breach, Trace
from tidegate.sim.trace.trace_json import encoded
from tidegate_adapters.base.redaction import one_line
from tidegate_adapters.cli.exploring import Watch, stoppable, uncollected
from tidegate_adapters.cli.following import diverged, replayed
from tidegate_adapters.cli.progress import shown
from tidegate_adapters.cli.recordings import execute_again
from tidegate_adapters.exploring.counterexamples import bytes_of, trace_in
from tidegate_adapters.exploring.targets import Target, one, recorded
from tidegate_adapters.shell.terminal import Terminal, error_json

_RECORDING_BEGINS: Final = 100


@final
@attrs.frozen
class How:
    """The options of a replay.

    Attributes:
        is_stepwise: Show each step with its changes, and wait in between on a terminal.
        goes_on: Explore from the last step, or from the one before a divergence.
    """

    until: int | None = None
    is_stepwise: bool = False
    goes_on: bool = False
    states_max: int = 0
    timeout_s: float | None = None


def replay_one(path: Path, text: str | None, how: How, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Replay the trace in a file, in the target `text` or the one in the trace."""
    data = bytes_of(path)
    if is_recording(data[:_RECORDING_BEGINS].decode(errors="replace")):
        if how != How(states_max=how.states_max):
            raise Misuse(f"{path} is the recording of a run", why="--until, --step and --continue are for traces")
        return execute_again(path, data.decode(errors="replace"), text, terminal, is_json=is_json)
    trace = _cut(trace_in(path, data), how.until, path)
    target = recorded(trace.scenario) if text is None else one(text)
    if how.goes_on:
        return _explore_on(trace, target, how, terminal, is_json=is_json)
    run = replayed(trace, target, partial(followed, trace))
    match run.outcome:
        case Reproduced(steps):
            if is_json:
                state = {} if how.until is None else {"state": to_json(run.state)}
                terminal.answer({**_answer(trace), "verdict": "reproduced", "steps": steps, **state, "ok": True})
            elif how.is_stepwise:
                _step_through(trace, terminal)
            else:
                terminal.say(render(trace))
            if not is_json:
                for line in () if how.until is None else (f"after step {steps}:", *state_lines(run.state)):
                    terminal.say(line)
                terminal.say(f"reproduced {number_of(steps, 'step')}")
            return ExitCode.OK
        case Diverged(step, reason, enabled, was):
            error = diverged(trace, target, run.outcome)
            if is_json:
                at = {"verdict": "diverged", "step": step, "reason": reason, "recorded": was, "enabled": list(enabled)}
                terminal.answer({**_answer(trace), **at, "ok": False, "error": error_json(error)})
            terminal.complain(error)
            return ExitCode.DIVERGED


def _cut(trace: Trace, until: int | None, path: Path) -> Trace:
    if until is None or until == len(trace.steps):
        return trace
    if until > len(trace.steps):
        raise Misuse(
            f"there is no step {until}", where=str(path), why=f"the trace has {number_of(len(trace.steps), 'step')}"
        )
    return attrs.evolve(trace, steps=trace.steps[:until], law="", breach=Breach.NONE, why="", loop=0)


def _step_through(trace: Trace, terminal: Terminal) -> None:
    width = max(len(mover.name) for mover in trace.movers)
    waits = sys.stdin.isatty() and terminal.out.isatty()
    number = 1
    while number <= len(trace.steps):
        step = trace.steps[number - 1]
        for line in (f"{number:>4}  {step.process:<{width}}  {step.event}", *map(_change_line, step.patch)):
            terminal.say(one_line(line))
        if waits and number < len(trace.steps):
            terminal.tell("Enter or n: next   p: back   q: end")
            said = sys.stdin.readline()
            if not said or said.strip() == "q":
                return
            number = max(1, number - 1) if said.strip() == "p" else number + 1
        else:
            number += 1


def _change_line(change: PatchOperation) -> str:
    return f"      {sentence(change)}"


def _explore_on(trace: Trace, target: Target, how: How, terminal: Terminal, *, is_json: bool) -> ExitCode:
    with stoppable() as stop, uncollected(), shown(target.scenario.name, terminal, quiet=is_json) as show:
        watch = Watch(show, lambda: stop.code is not None, how.timeout_s)
        beyond = replayed(trace, target, lambda search: explored_on(trace, search, how.states_max, watch))
    found = beyond.found
    if isinstance(beyond.outcome, Diverged):
        terminal.tell(f"warning: diverged at step {beyond.outcome.step}: {beyond.outcome.reason}")
    reason = watch.why or found.stopped
    verdict = "violated" if beyond.trace else "inconclusive" if reason else "complete"
    if is_json:
        counterexample = None if beyond.trace is None else encoded(beyond.trace)
        facts = {"verdict": verdict, "steps": beyond.steps, "states": found.states, "transitions": found.transitions}
        law = "" if beyond.trace is None else beyond.trace.law
        ok = verdict == "complete"
        more = {"stopped_because": reason, "law": law, "counterexample": counterexample, "ok": ok}
        terminal.answer({**_answer(trace), **facts, **more})
    else:
        if beyond.trace is not None:
            terminal.say(render(beyond.trace))
        terminal.say(
            f"{verdict}: {found.states:,} states and {found.transitions:,} transitions beyond step {beyond.steps}"
        )
        if reason and beyond.trace is None:
            terminal.say(f"stopped because: {reason}")
    if stop.code is not None:
        return stop.code
    return {"violated": ExitCode.NOT_MET, "inconclusive": ExitCode.INCONCLUSIVE, "complete": ExitCode.OK}[verdict]


def _answer(trace: Trace) -> dict[str, object]:
    return {"schema": "tidegate/replay@1", "scenario": trace.scenario, "law": trace.law, "seed": trace.seed}
