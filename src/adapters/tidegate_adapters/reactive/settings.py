"""What an app of reactive tasks is told that is not code; a file, the environment and arguments can say otherwise
(`tidegate_adapters.shell.configuration`).

No driver is needed to read or to show it.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.model.values import check_name, check_type
from tidegate_adapters.reactive.planner import PlannerRules
from tidegate_adapters.reactive.sites import KEY
from tidegate_adapters.shell.settings import PAUSED_EVERY, AppSettings, placed

__all__ = ["PAUSED_EVERY", "ReactiveSettings"]

_PLACES: Final = placed(application="database", planner="paused_every")


@final
@attrs.frozen(kw_only=True, field_transformer=_PLACES)
class ReactiveSettings(AppSettings):
    """What an app is told, besides the settings of `AppSettings`. Its `database` is where tasks are that name no other.

    Attributes:
        application: Which application it is, where several with other tasks share a database: of each, one process plans.
        planner: How one of the processes plans for all.
    """

    application: str = KEY
    planner: PlannerRules = attrs.field(factory=PlannerRules)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_name(self.application, "an application")
        check_type(self.planner, PlannerRules, "planner")
