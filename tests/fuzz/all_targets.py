"""All targets by their names."""

from __future__ import annotations

from collections.abc import Mapping

from . import caldav_targets, control_targets, file_targets, jmap_targets, mail_targets, mapi_targets, visit_targets
from .target import Target

TARGETS: Mapping[str, Target] = {
    each.name: each
    for each in (
        *mail_targets.TARGETS,
        *mapi_targets.TARGETS,
        *jmap_targets.TARGETS,
        *caldav_targets.TARGETS,
        *visit_targets.TARGETS,
        *file_targets.TARGETS,
        *control_targets.TARGETS,
    )
}
