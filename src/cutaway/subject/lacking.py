"""Why a value that a family has does not exist at a place of one model."""

from __future__ import annotations

from cutaway.sites import MOMENTS
from cutaway.subject.places import Places
from cutaway.subject.survey import Survey
from cutaway.vocabulary import ValuePath


def why_not_reached(survey: Survey, places: Places, path: ValuePath, counted: int) -> str:
    """Why no pass comes by a value's site; empty where one does.

    Args:
        survey: what a pass came by.
        places: where modules stand.
        path: of a value that is not derived.
        counted: how many layers the config counts.
    """
    family = places.family(path.layer)
    if path.name not in family.values:
        return family.why_lacking(path.name)
    site = family.values[path.name]
    reason = places.why_missing(path.value.host, path.layer, site)
    if reason:
        return reason
    own = places.of_site(path.value.host, path.layer, site)
    if survey.failure:
        return f"No pass of this model could be run to see what it comes by: {survey.failure}."
    if (own, site.moment) not in survey.order:
        more = f" The config counts {counted} layers." if (path.layer or 0) >= counted else ""
        return f"A pass of this model does not come by it: `{own or 'the model'}`, {MOMENTS[site.moment]}.{more}"
    if own in survey.repeated:
        return f"A pass of this model comes by it more than once: it calls `{own}` several times."
    if (own, site.moment) in survey.twice:
        return f"One call of `{own}` comes by it more than once: {MOMENTS[site.moment]}."
    return ""
