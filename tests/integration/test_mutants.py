from __future__ import annotations

import ast

from tests.integration.mutants import SOURCES, mutants, sample

SOURCE = '''
def told(at: int, most: int = 3) -> bool:
    """Text."""
    assert at > 0
    if at < most and not at:
        say("a line", at + 1)
        stop(at)
    return True
'''


def test_one_place_is_changed_and_neither_texts_nor_lines_of_the_log_nor_what_is_believed() -> None:
    made = [*mutants("m", SOURCE)]
    assert [str(each).partition(": ")[2] for each in made] == [
        "if at < most and (not at): -> if not (at < most and (not at)):",
        "at < most and (not at) -> at < most or not at",
        "at < most -> at <= most",
        "not at -> at",
        "stop(at) -> pass",
        "return True -> return None",
        "True -> False",
    ]
    texts = [each.text for each in made]
    assert len({ast.unparse(ast.parse(SOURCE)), *texts}) == len(made) + 1


def test_a_seed_has_its_sample() -> None:
    lines = {"tidegate/sinks/outbox.py": dict.fromkeys(range(1_000), ("a test",))}
    shown = [str(each) for each in sample(3, 60, SOURCES["core"], lines)]
    assert shown == [str(each) for each in sample(3, 60, SOURCES["core"], lines)]
    assert shown != [str(each) for each in sample(4, 60, SOURCES["core"], lines)]
    assert {each.partition(":")[0] for each in shown} == {*lines}
    for each in sample(3, 3, SOURCES["core"], lines):
        compile(each.text, each.module, "exec")
