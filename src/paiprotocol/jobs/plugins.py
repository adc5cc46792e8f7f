"""Runtime plugins as shell scripts that run before and after a task's commands.

Each runs in its own subshell, so it cannot change the environment of the commands; only `ssh` has to. Plugins
that a role has as prerequisites run first, then those of ``extras``; the scripts after the commands run in
reverse order.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paiprotocol.jobs.extras import RUNTIME_PLUGIN
from paiprotocol.jobs.limits import ExpansionBudget
from paiprotocol.jobs.model import JobSpec, TaskRole
from paiprotocol.jobs.template import as_text

_MAX_CLONE_ATTEMPTS = 10
_CLONE_BACKOFF_MAX_S = 300
_NOT_PARAMETERS = ("plugin", "failurePolicy", "type", "name", "require")
# The cluster itself implements these, outside the task or from other fields of the job.
_HANDLED_BY_CLUSTER = ("teamwise_storage",)
_SSH_BARRIER_MINUTES = 30


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin of a role: its name without the prefix, and whether the task continues if it fails."""

    name: str
    parameters: Mapping[str, Any]
    ignore_failure: bool = False


def plugins_of(role: TaskRole, job: JobSpec) -> Iterator[Plugin]:
    """The role's plugins in the order in which they start."""
    named = {item.name: item for item in job.prerequisites if (item.plugin or "").startswith(RUNTIME_PLUGIN)}
    for name in role.prerequisites:
        item = named.get(name)
        if item is not None and item.plugin is not None:
            parameters = {key: value for key, value in item.fields.items() if key not in _NOT_PARAMETERS}
            yield _plugin(item.plugin, parameters, item.fields.get("failurePolicy"))
    for entry in job.extras.get(RUNTIME_PLUGIN) or ():
        roles = entry.get("taskroles")
        if roles is None or role.name in roles:
            yield _plugin(entry["plugin"], entry.get("parameters") or {}, entry.get("failurePolicy"))


def plugin_scripts(
    role: TaskRole, job: JobSpec, budget: ExpansionBudget | None = None
) -> tuple[list[str], list[str]]:
    """Scripts that run before and after the role's commands."""
    # A role may name a plugin many times: the budget bounds the scripts while they are built.
    budget = budget or ExpansionBudget()
    before: list[str] = []
    after: list[str] = []
    for plugin in plugins_of(role, job):
        if plugin.name == "ssh":
            scripts = _ssh(plugin, job)
            budget.spend(sum(map(len, scripts)))
            before += scripts
            continue
        pre_scripts, post_scripts = _scripts(plugin, job)
        budget.spend(sum(map(len, (*pre_scripts, *post_scripts))))
        before += [_in_subshell(plugin, script) for script in pre_scripts if script.strip()]
        after += [_in_subshell(plugin, script) for script in post_scripts if script.strip()]
    return before, after[::-1]


def _plugin(name: str, parameters: Any, policy: Any) -> Plugin:
    short = name.removeprefix(RUNTIME_PLUGIN).lstrip(".")
    return Plugin(short, parameters if isinstance(parameters, Mapping) else {}, policy == "ignore")


def _in_subshell(plugin: Plugin, script: str) -> str:
    if plugin.ignore_failure:
        return f"(\nset +o errexit\n{script}\n) || {_failure_message(plugin)}"
    return f"(\n{script}\n)"


def _ssh(plugin: Plugin, job: JobSpec) -> list[str]:
    """Let the tasks of a gang connect with each other, and wait for all of them.

    Clients outside the cluster need nothing in the task: the cluster serves them.
    """
    connects, waits = (plugin.parameters.get(name) is True for name in ("jobssh", "sshbarrier"))
    if not (connects or waits) or not job.gang:
        return []
    arguments = ["pai-runtime", "job-ssh", *(["--config"] if connects else [])]
    if waits:
        minutes = plugin.parameters.get("sshbarrierTimeout")
        is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool) and minutes > 0
        arguments += ["--barrier", str(minutes if is_number else _SSH_BARRIER_MINUTES)]
    arguments += [f"{role.name}:{role.instances}" for role in job.task_roles]
    command = f"pai_ssh=$({shlex.join(arguments)})"
    if plugin.ignore_failure:
        command += f" || {_failure_message(plugin)}"
    return [f'{command}\neval "$pai_ssh"']


def _failure_message(plugin: Plugin) -> str:
    return _echo(f"The plugin {plugin.name} failed; the task continues (failurePolicy: ignore).")


def _scripts(plugin: Plugin, job: JobSpec) -> tuple[list[str], list[str]]:
    if plugin.name == "cmd":
        return _cmd(plugin.parameters)
    if plugin.name == "git":
        return [_git(plugin.parameters)], []
    if plugin.name == "tensorboard":
        return [_tensorboard(plugin.parameters, job)], []
    if plugin.name in _HANDLED_BY_CLUSTER:
        return [], []
    unknown = _echo(f"This cluster does not know the plugin {plugin.name}.")
    return [unknown if plugin.ignore_failure else f"{unknown}\nexit 1"], []


def _echo(text: str) -> str:
    return f"echo {shlex.quote(text)} >&2"


def _lines(commands: Any) -> str:
    return "\n".join(str(command) for command in commands) if isinstance(commands, list | tuple) else ""


def _cmd(parameters: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    entries = parameters.get("callbacks")
    callbacks = (
        [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    )
    if not callbacks:
        return [_lines(parameters.get("preCommands"))], [_lines(parameters.get("postCommands"))]
    starts = [_lines(entry.get("commands")) for entry in callbacks if entry.get("event") == "taskStarts"]
    ends = [_lines(entry.get("commands")) for entry in callbacks if entry.get("event") == "taskSucceeds"]
    return starts, ends


def _git(parameters: Mapping[str, Any]) -> str:
    uri = as_text(parameters.get("repo_uri") or "")
    if not uri:
        return f"{_echo('The plugin git needs repo_uri, the URL of the repository.')}\nexit 1"
    options = parameters.get("options") or ()
    try:
        arguments = shlex.split(options) if isinstance(options, str) else [as_text(word) for word in options]
    except (TypeError, ValueError):
        return f"{_echo('The options of the plugin git are not a list or a shell command line.')}\nexit 1"
    name = uri.rstrip("/").rpartition("/")[2].removesuffix(".git") or "code"
    target = shlex.quote(as_text(parameters.get("clone_dir") or name))
    clone = shlex.join(["git", "clone", *arguments, "--", uri])
    return (
        f'if [ -e {target} ] && [ -n "$(ls -A {target})" ]; then\n'
        f"  {_echo('The plugin git cannot clone into a folder that is not empty.')}\n"
        "  exit 1\n"
        "fi\n"
        "tries=1 pause=1\n"
        f"until {clone} {target}; do\n"
        f'  if [ "$tries" -ge {_MAX_CLONE_ATTEMPTS} ]; then\n'
        f"    {_echo('The plugin git failed after the last retry.')}\n"
        "    exit 1\n"
        "  fi\n"
        '  sleep "$pause"\n'
        "  tries=$((tries + 1)) pause=$((pause * 2))\n"
        f'  if [ "$pause" -gt {_CLONE_BACKOFF_MAX_S} ]; then pause={_CLONE_BACKOFF_MAX_S}; fi\n'
        "done"
    )


def _tensorboard(parameters: Mapping[str, Any], job: JobSpec) -> str:
    """Start TensorBoard in the first task of the first role only; it stops with the task."""
    folders = parameters.get("logdir")
    folders = folders if isinstance(folders, Mapping) else {}
    spec = shlex.quote(",".join(f"{name}:{as_text(path)}" for name, path in folders.items()))
    port = shlex.quote(as_text(parameters.get("port") or "6006"))
    first = shlex.quote(job.task_roles[0].name)
    failed = _echo(
        "TensorBoard is neither installed nor can it be; add it to the image, or remove the plugin."
    )
    return (
        f'if [ "$PAI_CURRENT_TASK_ROLE_NAME" = {first} ] && '
        '[ "$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX" = 0 ]; then\n'
        "  mkdir -p .pai\n"
        "  if command -v tensorboard >/dev/null 2>&1; then\n"
        "    pai_board=tensorboard\n"
        "  else\n"
        # Into a folder of its own: distributions protect theirs, and the job's packages stay as they are.
        "    python3 -m pip install -q --disable-pip-version-check --target .pai/tensorboard tensorboard"
        f" || {{ {failed}; exit 1; }}\n"
        '    export PYTHONPATH="$PWD/.pai/tensorboard"\n'
        '    pai_board="python3 -m tensorboard.main"\n'
        "  fi\n"
        f"  $pai_board --logdir_spec={spec} --bind_all --port={port} >.pai/tensorboard.log 2>&1 &\n"
        "fi"
    )
