"""Job templates."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from paicluster.api.wire.base import GroupName, WireModel

MAX_DESCRIPTION_LENGTH = 1000
Description = Annotated[str, Meta(max_length=MAX_DESCRIPTION_LENGTH)]


class JobTemplateBody(WireModel):
    """`protocol` is a job file of version 2, in YAML or JSON. Without a group only its owner may use it."""

    protocol: str
    group: GroupName | UnsetType | None = UNSET
    description: Description | UnsetType = UNSET


class JobTemplateSummary(WireModel):
    username: str
    name: str
    group: str | None
    description: str
    modified_time: int
    may_change: bool
    """Whether the caller may change and delete it."""


class JobTemplate(JobTemplateSummary):
    protocol: str
