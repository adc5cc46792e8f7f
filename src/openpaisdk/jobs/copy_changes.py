"""Changes to the copy of a job: the options of ``pai sub``, applied to a job that exists.

Pure: plain data in, plain data out. An option that is not given leaves the value of the job as it is.
"""

from __future__ import annotations

from openpaisdk.jobs.command_job import (
    HOST_IMAGE,
    IMAGE_NAME,
    absolute_workspace,
    check_pip_path,
    with_extras,
)
from openpaisdk.jobs.command_submission import check_features
from openpaisdk.jobs.deployment_commands import change_pre_commands
from openpaisdk.jobs.job_options import KEYWORDS, JobOptions
from openpaisdk.jobs.option_definition import PRE_COMMANDS, ROLE
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from openpaisdk.config.clusters import ClusterEntry

_UNCHANGED = ("unchanged",)
"""Stands for the commands where none are given."""


class CopyChanges:
    """Differences between a copy and its job.

    ``roles``: the task roles to change, by default the only one. ``given``: values of options by keyword.
    ``sources``: hash and size of another source archive; empty for no files, None for those of the job.
    ``tasks``: the only ones of an array that the copy runs; empty for all.
    """

    def __init__(self, *, commands: Sequence[str] = (), roles: Sequence[str] = (), **given: Any):
        values = {keyword: value for keyword, value in given.items() if value is not None}
        self.options = options = JobOptions.read("copy", commands or _UNCHANGED, values)
        changed = [option for keyword in values if (option := KEYWORDS[keyword]).is_set_in(options)]
        self.commands = list(commands)
        self.roles = list(roles)
        self.places = {option.place for option in changed}
        """Parts of the job that change."""
        names = {option.name for option in changed}
        self.instances = options.instances if "instances" in names else None
        self.retries = options.retries if "retries" in names else None
        self.sources: Mapping[str, object] | None = None
        self.tasks: Sequence[int] = ()
        check_pip_path(options.pip_path, options.pip_installs)

    def set_secrets(self, secrets: dict[str, str]) -> None:
        """Set the secrets that the copy adds. The job's configuration tells which ones it has already."""
        self.options.secrets = secrets
        if secrets:
            self.places.add(PRE_COMMANDS)

    def check(self, entry: ClusterEntry) -> None:
        """Reject changes without an effect, and those that OpenPAI's own server would ignore."""
        if self.roles and not self._changes_roles:
            raise UsageError(
                "--role says which task roles the options change, and no option changes one.",
                hint="Add what to change, as in --role worker --cpu 4.",
            )
        check_features(self.options, entry)
        if entry.is_paicluster:
            return
        # There the job's own commands transfer its files, with paths written into them.
        for value, option in (
            (self.options.outputs, "--outputs"),
            (self.options.workspace, "--workspace"),
            (self.sources is not None, "--sources and --no-sources"),
        ):
            if value:
                raise UsageError(
                    f"A copy of a job on the cluster {entry.alias} cannot change {option}.",
                    hint="Submit the command again with pai sub.",
                )

    def apply(self, data: Mapping[str, Any], user: str) -> dict[str, Any]:
        """The job with these changes; ``user`` owns a relative workspace."""
        options, job = self.options, dict(data)
        if self.tasks:
            from openpaisdk.jobs.failed_tasks import repeat_tasks

            job = repeat_tasks(job, self.tasks)
        if self._concerns_roles:
            job = self._change_roles(job)
        if self.retries is not None:
            job["jobRetryCount"] = self.retries
        if options.workspace:
            workspace = absolute_workspace(options.workspace, user)
            folder = f"{workspace.rstrip('/')}/jobs/{job['name']}"
            job["parameters"] = {**_mapping(job.get("parameters")), "work_directory": folder}
        extras = with_extras(_mapping(job.get("extras")), options)
        additions = _mapping(extras.get("openpaisdk"))
        if self.sources is not None:
            additions["sources"] = dict(self.sources)
            if not self.sources:
                del additions["sources"]
        if additions:
            extras["openpaisdk"] = additions
        else:
            extras.pop("openpaisdk", None)
        if extras:
            job["extras"] = extras
        return job

    @property
    def is_empty(self) -> bool:
        """Whether nothing is changed in the copy."""
        return not (self.places or self.commands or self.roles or self.tasks) and self.sources is None

    @property
    def _concerns_roles(self) -> bool:
        return bool(self.roles) or self._changes_roles

    @property
    def _changes_roles(self) -> bool:
        return bool(self.commands) or not self.places.isdisjoint((ROLE, PRE_COMMANDS))

    def _change_roles(self, job: dict[str, Any]) -> dict[str, Any]:
        roles = {name: dict(role) for name, role in _mapping(job.get("taskRoles")).items()}
        changed = self._select_roles(roles)
        additions = _mapping(_mapping(job.get("extras")).get("openpaisdk"))
        if self.instances is not None and (additions.get("array") or additions.get("arrayRows")):
            raise UsageError(
                "The job has one task for each value of its array: --instances cannot change that.",
                hint="Submit the command again with pai sub --array.",
            )
        for name in changed:
            roles[name] = self._change_role(roles[name])
        job["taskRoles"] = roles
        if self.options.image:
            job["prerequisites"] = _with_image(job, roles, changed, self.options.image)
        return self._with_pre_commands(job, changed) if PRE_COMMANDS in self.places else job

    def _select_roles(self, roles: Mapping[str, object]) -> list[str]:
        names = ", ".join(roles)
        if unknown := [name for name in self.roles if name not in roles]:
            raise UsageError(f"The job has no task role {unknown[0]!r}: it has {names}.")
        if not self.roles and len(roles) > 1:
            raise UsageError(
                f"The job has several task roles ({names}).", hint="Name those to change with --role."
            )
        return self.roles or list(roles)

    def _change_role(self, role: dict[str, Any]) -> dict[str, Any]:
        from openpaisdk.jobs.option_values import memory_mb

        options = self.options
        requested = _mapping(role.get("resourcePerInstance"))
        memory = memory_mb(options.mem) if options.mem else options.memory_mb
        for key, amount in (("cpu", options.cpu), ("gpu", options.gpu), ("memoryMB", memory)):
            if amount is not None:
                requested[key] = amount
        if options.ports:
            requested["ports"] = {**_mapping(requested.get("ports")), **options.ports}
        role["resourcePerInstance"] = requested
        if self.instances is not None:
            role["instances"] = self.instances
        if self.commands:
            role["commands"] = self.commands
        return role

    def _with_pre_commands(self, job: dict[str, Any], roles: Sequence[str]) -> dict[str, Any]:
        """Commands of the deployment in use; a new value of a variable replaces the earlier one."""
        from openpaisdk.jobs.pre_commands import HOLD_START, PreCommands

        options = self.options
        commands = PreCommands(options)
        hold, added = commands.hold(), commands.setup()
        replaced = (*(f"export {name}=" for name in options.env), *((HOLD_START,) if hold else ()))

        def change(lines: list[str]) -> list[str]:
            kept = [line for line in lines if not (replaced and line.startswith(replaced))]
            # A hold comes first: the later of two EXIT traps wins, and outputs must not be lost.
            return [*hold, *kept, *added]

        return change_pre_commands(job, roles, change)


def _with_image(
    job: Mapping[str, Any], roles: dict[str, dict[str, Any]], changed: Sequence[str], image: str
) -> list[dict[str, Any]]:
    """The prerequisites with another image for some roles; the others keep theirs."""
    if image.startswith("-"):
        raise UsageError(f"{image!r} is not an image: it begins with -, like an option.")
    items = [dict(item) for item in job.get("prerequisites") or []]
    old = {str(roles[name].get("dockerImage") or "") for name in changed}
    in_use = {str(role.get("dockerImage") or "") for name, role in roles.items() if name not in changed}
    taken = {str(item.get("name")) for item in items} - (old - in_use)
    new_name = next((name for name in sorted(old - in_use) if name), IMAGE_NAME)
    while new_name in taken:
        new_name += "_copy"
    new: dict[str, Any] = {"name": new_name, "type": "dockerimage", "uri": image}
    for item in items:
        if (
            item.get("name") in old
            and item.get("auth")
            and _registry(str(item.get("uri"))) == _registry(image)
        ):
            new["auth"] = item["auth"]
    for name in changed:
        roles[name]["dockerImage"] = new_name
    return [*(item for item in items if item.get("name") not in old - in_use), new]


def _registry(image: str) -> str:
    """Host of the registry that has an image; empty for the default one."""
    host, slash, _ = image.partition("/")
    return host if slash and image != HOST_IMAGE and ("." in host or ":" in host) else ""


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
