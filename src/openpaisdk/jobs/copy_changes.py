"""Changes to the copy of a job: the options of ``pai sub``, applied to a job that exists.

Pure: plain data in, plain data out. An option that is not given leaves the value of the job as it is.
"""

from __future__ import annotations

from openpaisdk.errors import UsageError
from openpaisdk.jobs.command_job import (
    DEPLOYMENT,
    HOST_IMAGE,
    IMAGE_NAME,
    JobOptions,
    absolute_workspace,
)
from openpaisdk.jobs.command_options import command_options
from openpaisdk.jobs.command_submission import check_features
from openpaisdk.jobs.option_values import whole_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from openpaisdk.config.clusters import ClusterEntry

_UNCHANGED = ("unchanged",)
"""Stands for the commands where none are given."""


class CopyChanges:
    """What a copy has that its job has not.

    ``roles``: the task roles to change, by default the only one. ``sources``: hash and size of another source
    archive; empty for no files, None for those of the job.
    """

    def __init__(
        self,
        *,
        commands: Sequence[str] = (),
        roles: Sequence[str] = (),
        instances: int | None = None,
        retries: int | None = None,
        **options: Any,
    ):
        self.options: JobOptions = command_options("copy", commands or _UNCHANGED, **options)
        self.commands = list(commands)
        self.roles = list(roles)
        self.instances = None if instances is None else whole_number(instances, 1, "instances")
        self.retries = None if retries is None else whole_number(retries, 0, "retries")
        self.sources: Mapping[str, object] | None = None

    def check(self, entry: ClusterEntry) -> None:
        """Reject changes that OpenPAI's own server would ignore."""
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
        if self._concerns_roles:
            job = self._change_roles(job)
        if self.retries is not None:
            job["jobRetryCount"] = self.retries
        if options.workspace:
            workspace = absolute_workspace(options.workspace, user)
            folder = f"{workspace.rstrip('/')}/jobs/{job['name']}"
            job["parameters"] = {**_mapping(job.get("parameters")), "work_directory": folder}
        extras = _mapping(job.get("extras"))
        if options.tags:
            present = extras.get("tags")
            known = present if isinstance(present, list) else []
            extras["tags"] = [*known, *(tag for tag in options.tags if tag not in known)]
        if options.priority:
            scheduler = _mapping(extras.get("hivedScheduler"))
            extras["hivedScheduler"] = {**scheduler, "jobPriorityClass": options.priority}
        additions = _mapping(extras.get("openpaisdk"))
        for key, value in (
            ("after", options.after),
            ("timeLimit", options.time_limit_s),
            ("outputs", options.outputs),
        ):
            if value:
                additions[key] = value
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
        """Whether the copy is to be as the job is."""
        options = self.options
        values = (options.workspace, options.tags, options.priority, options.after, options.time_limit_s)
        is_same = self.retries is None and self.sources is None and not any((*values, options.outputs))
        return is_same and not self._concerns_roles

    @property
    def _concerns_roles(self) -> bool:
        options = self.options
        amounts = (options.cpu, options.gpu, options.memory_mb, self.instances)
        return any(amount is not None for amount in amounts) or any(
            (self.commands, self.roles, options.mem, options.ports, options.image, self._has_pre_commands)
        )

    @property
    def _has_pre_commands(self) -> bool:
        options = self.options
        return any(
            (
                options.env,
                options.secrets,
                options.python,
                options.pip_installs,
                options.debug_hold_s,
                options.capture_logging,
            )
        )

    def _change_roles(self, job: dict[str, Any]) -> dict[str, Any]:
        roles = {name: dict(role) for name, role in _mapping(job.get("taskRoles")).items()}
        changed = self._select_roles(roles)
        if self.instances is not None and _mapping(_mapping(job.get("extras")).get("openpaisdk")).get(
            "array"
        ):
            raise UsageError(
                "The job has one task for each value of its array: --instances cannot change that.",
                hint="Submit the command again with pai sub --array.",
            )
        for name in changed:
            roles[name] = self._change_role(roles[name])
        job["taskRoles"] = roles
        if self.options.image:
            job["prerequisites"] = _with_image(job, roles, changed, self.options.image)
        if self._has_pre_commands:
            self._add_pre_commands(job, changed)
        return job

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

    def _add_pre_commands(self, job: dict[str, Any], roles: Sequence[str]) -> None:
        """Commands of the deployment in use; a new value of a variable replaces the earlier one."""
        from openpaisdk.jobs.pre_commands import PreCommands

        options = self.options
        added = PreCommands(
            environment=options.env,
            secrets=options.secrets,
            python=options.python,
            pip_installs=options.pip_installs,
            pip_path=options.pip_path,
            capture_logging=options.capture_logging,
        ).pre_commands()
        # A hold is set up before all else: the later of two EXIT traps wins, and outputs must not be lost.
        hold = PreCommands(debug_hold=options.debug_hold_s).pre_commands()
        replaced = tuple(f"export {name}=" for name in options.env)
        defaults = _mapping(job.get("defaults"))
        name = str(defaults.get("deployment") or DEPLOYMENT)
        deployments = [dict(d) for d in job.get("deployments") or []]
        used = next((d for d in deployments if d.get("name") == name), None)
        if used is None:
            used = {"name": name}
            deployments.append(used)
        in_roles = {role: dict(commands) for role, commands in _mapping(used.get("taskRoles")).items()}
        for role in roles:
            own = in_roles.setdefault(role, {})
            kept = [
                line for line in own.get("preCommands") or [] if not (replaced and line.startswith(replaced))
            ]
            own["preCommands"] = [*hold, *kept, *added]
        used["taskRoles"] = in_roles
        job["deployments"] = deployments
        job["defaults"] = {**defaults, "deployment": name}


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
