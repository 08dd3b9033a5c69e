"""The settings of an app of reactive tasks (`tidegate_adapters.shell.configuration`)."""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.model.values import check_name, check_type
from tidegate_adapters.reactive.names import KEY
from tidegate_adapters.reactive.planner import PlannerRules
from tidegate_adapters.shell.settings import PAUSED_EVERY, AppSettings, placed

__all__ = ["PAUSED_EVERY", "ReactiveSettings"]

_PLACES: Final = placed(application="database", planner="paused_every")


@final
@attrs.frozen(kw_only=True, field_transformer=_PLACES)
class ReactiveSettings(AppSettings):
    """The settings of an app, besides those of `AppSettings`; `database` is the default one.

    Attributes:
        application: Names the app if apps with other tasks share a database.
        planner: The limits of planners.
    """

    application: str = KEY
    planner: PlannerRules = attrs.field(factory=PlannerRules)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_name(self.application, "an application")
        check_type(self.planner, PlannerRules, "planner")
