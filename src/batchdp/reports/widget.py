"""Plans and releases as widgets in notebooks: the budget as a slider, the tables with their intervals (anywidget).

A widget gets all that it shows when it is made; its script is in this package, and nothing comes from a network.
"""

from __future__ import annotations

import json
import math
import types
from functools import cache, singledispatch
from importlib.util import find_spec
from typing import Any

from batchdp.errors import BatchDPError
from batchdp.plans.planned import Plan
from batchdp.release.release import Release
from batchdp.reports.notebook import facts_of_plan, facts_of_release, look_at, release_title
from batchdp.reports.planned import Prospect, derived_rows, statement_rows
from batchdp.reports.rendering import render_part

MOST_SHOWN = 2_000
"""Answers of a release that are all in its widget; of more, the largest of the first tables."""


@singledispatch
def contents(value: Any) -> dict[str, Any]:
    """What a widget shows, and the budget at which it starts; each kind of value is registered."""
    raise NotImplementedError(f"a {type(value).__name__} has no widget")


@contents.register
def _(plan: Plan) -> dict[str, Any]:
    prospect = Prospect(plan, None, None)
    low, high = prospect.ends()
    rows = [
        {"name": one.name, "answers": one.queries, "half": half, "error": one.standard_error}
        for one, half in statement_rows(prospect)
        if not one.part_of
    ]
    derived = derived_rows(prospect, []) if plan.derived else []
    rows += [{"name": one["name"], "answers": one["answers"], "curve": json.loads(one["curve"])} for one in derived]
    content = {
        "title": f"{prospect.answers:,} planned answers about {plan.domain.table}",
        "facts": facts_of_plan(plan),
        "letter": prospect.noise.letter,
        "norm": prospect.noise.norm,
        "reference": float(prospect.reference),
        "low": low,
        "high": high,
        "curve": prospect.curve,
        "rows": rows,
    }
    return {"content": content, "budget": prospect.start}


@contents.register
def _(release: Release) -> dict[str, Any]:
    look = look_at(release, whole=MOST_SHOWN)
    tables = [
        {
            "title": "Single answers" if one.single else one.title,
            "more": one.more,
            "rows": [
                (name + " (derived)" * (derived and one.single), *(None if math.isnan(n) else n for n in figures))
                for name, *figures, derived in one.rows
            ],
        }
        for one in look.tables
        if one.more < one.answers
    ]
    content = {
        "title": release_title(release),
        "facts": facts_of_release(release),
        "confidence": f"{100 * release.confidence:g} %",
        "tables": tables,
        "more": len(release.layout.tables(together=True)) - len(tables),
    }
    return {"content": content, "budget": float(release.certificate.budget)}


def widget(value: Any) -> Any:
    """The value as a widget; `budget` is where a plan's slider stands, and moves it when it is set."""
    if not is_there():
        raise BatchDPError("widgets need anywidget; pip install 'batchdp[notebook]' brings it")
    return _kind()(**contents(value))


def bundle(value: Any) -> Any:
    """What a notebook shows of a value as a widget; nothing where anywidget is not installed."""
    if not is_there():
        return {}
    shown, about = widget(value)._repr_mimebundle_()
    return {kind: content for kind, content in shown.items() if kind != "text/plain"}, about


def is_there() -> bool:
    """Whether anywidget is installed."""
    return find_spec("anywidget") is not None


@cache
def _kind() -> Any:
    """The class of all widgets, made when one is first shown: anywidget takes a while to import."""
    import anywidget
    import traitlets

    own = {
        "__doc__": "A plan or a release in a notebook.",
        "_esm": str(render_part("reports/widget.js")),
        "_css": str(render_part("reports/widget.css")),
        "content": traitlets.Dict().tag(sync=True),
        "budget": traitlets.Float().tag(sync=True),
    }
    return types.new_class("BatchWidget", (anywidget.AnyWidget,), {}, lambda names: names.update(own))
