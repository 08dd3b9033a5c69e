from __future__ import annotations

from types import ModuleType

import cloudpickle
import pytest
from tests.properties.sim import varied
from tests.properties.sim.varied import Answer, Asked, asked_twice, double

from tidegate.model.errors import Misuse
from tidegate.sim.trace.variants import variant

ADD = ("number + 1", "number + 2")


def test_what_stands_behind_a_table_is_varied() -> None:
    """Law VT2: a class that uses a function, and a function that uses the class."""
    assert variant(Asked, ADD)().answer("add", 1) == Answer(3)
    assert variant(asked_twice, ADD)(1) == 6
    assert variant(asked_twice, ADD, ("TWO: Final = 2", "TWO: Final = 3"))(1) == 9
    assert variant(asked_twice, double=lambda _: 10)(1) == 20
    assert variant(asked_twice, (" * double(1)", ""))(1) == 2  # the module has the rest too


def test_a_module_may_be_varied_as_a_whole() -> None:
    """Laws VT2 and VT3."""
    made = variant(varied, ADD)
    assert made.asked_twice(1) == 6
    assert made.double is double
    assert made.Answer is Answer


def test_a_module_that_is_varied_is_sent_to_another_process_as_it_is() -> None:
    """Importing its known name would load the original."""
    sent: ModuleType = cloudpickle.loads(cloudpickle.dumps(variant(varied, ADD)))
    assert sent.asked_twice(1) == 6


def test_what_does_not_use_it_stays() -> None:
    """Law VT2."""
    assert type(variant(Asked, ADD)().answer("add", 1)) is Answer


def test_a_variant_of_nothing_is_the_same() -> None:
    """Law VT1."""
    assert variant(Asked) is Asked


def test_the_module_is_as_before() -> None:
    """Law VT3."""
    before = dict(vars(varied))
    variant(asked_twice, ADD)
    assert vars(varied) == before
    assert asked_twice(1) == 4


@pytest.mark.parametrize(
    ("replacement", "says"),
    [
        (("number - 1", "number"), "tests.properties.sim.varied says 0 times 'number - 1'"),
        (("number", "n"), "tests.properties.sim.varied says 10 times 'number'"),
        (ADD, "double does not use what is replaced in tests.properties.sim.varied"),
    ],
)
def test_a_text_that_is_not_there_once_or_of_no_use_is_refused(replacement: tuple[str, str], says: str) -> None:
    with pytest.raises(Misuse) as caught:
        variant(double, replacement)
    assert says in str(caught.value)
