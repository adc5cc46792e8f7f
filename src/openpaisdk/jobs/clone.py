"""Clone of a submitted job under another name."""

from __future__ import annotations

import re

from openpaisdk.jobs.job_file import update_job
from openpaisdk.jobs.job_names import expand_name, random_letters
from openpaisdk.jobs.storage_upload import retarget_output
from openpaisdk.jobs.submission import MASK
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from openpaisdk.jobs.copy_changes import CopyChanges

_SECRET = re.compile(r"<%\s*\$secrets\.(\w+)")
_SUFFIX = re.compile(r"_[a-z2-9]{6,8}$")


def clone_job(
    config: str,
    *,
    name: str = "",
    updates: list[str] | None = None,
    deployment: str = "",
    virtual_cluster: str = "",
    secrets: Mapping[str, str] | None = None,
    changes: CopyChanges | None = None,
    user: str = "",
    notify: Callable[[str], None] | None = None,
) -> dict[str, object]:
    """The job of a config as a cluster returns it, ready to be submitted under another name.

    Without ``name`` the old name gets a new suffix. ``secrets`` must have those that the cluster masked; with
    ``changes``, others become variables of the copy. ``user`` submits the copy.
    """
    import yaml

    data = yaml.load(config, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if not isinstance(data, dict):
        raise UsageError(
            "The config that the cluster returned for this job is not a job, so it cannot be cloned."
        )
    if changes is not None:
        changes.set_secrets(_new_secrets(secrets or {}, config))
        if not changes.is_empty and "protocolVersion" not in data:
            data = _convert(data, user, notify)
    key = "name" if "protocolVersion" in data else "jobName"
    old = str(data.get(key) or "job")
    data[key] = expand_name(name) if name else _next_name(old)
    _retarget_work_directory(data, old, str(data[key]))
    _restore_secrets(data, dict(secrets or {}), config)
    if deployment:
        _select_deployment(data, deployment)
    if changes is not None:
        data = changes.apply(data, user)
    return update_job(data, updates or [], virtual_cluster=virtual_cluster, notify=notify)


def _convert(data: dict[str, object], user: str, notify: Callable[[str], None] | None) -> dict[str, object]:
    """A version 1 job as one of version 2, which has all that options can change."""
    from paiprotocol.jobs import convert_v1

    conversion = convert_v1(data, user=user)
    for warning in conversion.warnings:
        if notify:
            notify(str(warning))
    return conversion.data


def _retarget_work_directory(data: dict[str, object], old: str, new: str) -> None:
    """Give the clone its own folder for outputs. The files it downloads stay where they are."""
    parameters = data.get("parameters")
    folder = parameters.get("work_directory") if isinstance(parameters, dict) else None
    if (
        isinstance(parameters, dict)
        and isinstance(folder, str)
        and folder.rstrip("/").endswith(f"/jobs/{old}")
    ):
        data["parameters"] = {**parameters, "work_directory": folder.rstrip("/")[: -len(old)] + new}
    deployments = data.get("deployments")
    for deployment in deployments if isinstance(deployments, list) else []:
        roles = deployment.get("taskRoles") if isinstance(deployment, dict) else None
        for role in roles.values() if isinstance(roles, dict) else []:
            lines = role.get("preCommands") if isinstance(role, dict) else None
            if isinstance(lines, list):
                role["preCommands"] = [retarget_output(line, old, new) for line in lines]


def _next_name(name: str) -> str:
    return f"{_SUFFIX.sub('', name)}_{random_letters(6)}"


def _restore_secrets(data: dict[str, object], secrets: dict[str, str], config: str) -> None:
    stored = data.get("secrets")
    known = {k: v for k, v in stored.items() if v != MASK} if isinstance(stored, dict) else {}
    known.update(secrets)
    used = _used_secrets(config)
    missing = [name for name in used if name not in known]
    if missing:
        options = " ".join(f"--secret {name}=..." for name in missing)
        raise UsageError(
            f"The job has secrets ({', '.join(missing)}), and the cluster does not return them.",
            hint=f"Pass them again: {options}",
        )
    if known:
        data["secrets"] = known
    else:
        data.pop("secrets", None)


def _used_secrets(config: str) -> list[str]:
    return list(dict.fromkeys(_SECRET.findall(config)))


def _new_secrets(secrets: Mapping[str, str], config: str) -> dict[str, str]:
    used = _used_secrets(config)
    return {name: value for name, value in secrets.items() if name not in used}


def _select_deployment(data: dict[str, object], deployment: str) -> None:
    deployments = data.get("deployments")
    names = (
        [str(d.get("name")) for d in deployments if isinstance(d, dict)]
        if isinstance(deployments, list)
        else []
    )
    if deployment not in names:
        existing = f"it has {', '.join(names)}" if names else "it has none"
        raise UsageError(f"The job has no deployment {deployment!r}: {existing}.")
    defaults = data.get("defaults")
    data["defaults"] = {**(defaults if isinstance(defaults, dict) else {}), "deployment": deployment}
