"""The results of `tidegate explore` as JUnit XML.

A broken expectation is a failure; an unknown one, or the error that ended the run, is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from tidegate.model.errors import TidegateError
from tidegate.sim.trace.rendering import render
from tidegate_adapters.base.redaction import clean, one_line, redacted
from tidegate_adapters.cli.lines import Result, broken


def junit(results: Sequence[Result], error: TidegateError | None) -> str:
    suite = Element("testsuite", name="tidegate")
    for result in results:
        _add_case(suite, result)
    if error is not None:
        case = SubElement(suite, "testcase", classname="tidegate", name="the exploration itself", time="0")
        _add_fault(case, "error", type(error).__name__, error.what, redacted(str(error)))
    count = {tag: len(suite.findall(f"testcase/{tag}")) for tag in ("failure", "error")}
    suite.attrib |= {
        "tests": str(len(suite)),
        "failures": str(count["failure"]),
        "errors": str(count["error"]),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }
    written: bytes = tostring(suite, encoding="utf-8", xml_declaration=True)
    return written.decode() + "\n"


def _add_case(suite: Element, result: Result) -> None:
    report = result.report
    name = one_line(report.scenario)
    case = SubElement(suite, "testcase", classname="tidegate", name=name, time=f"{result.seconds:.3f}")
    if result.is_met:
        return
    if result.is_open:
        _add_fault(case, "error", report.verdict.value, report.reason, "")
        return
    trace = report.trace if result.smaller is None else result.smaller.trace
    _add_fault(case, "failure", report.verdict.value, broken(result), "" if trace is None else render(trace))


def _add_fault(case: Element, tag: str, kind: str, message: str, text: str) -> None:
    fault = SubElement(case, tag, type=kind, message=one_line(redacted(message)))
    fault.text = clean(text)
