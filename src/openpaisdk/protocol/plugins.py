"""Runtime plugins as words of the shell: what runs before a task's commands and what after them.

Each runs in a shell of its own, so nothing it changes there reaches the commands. Those that a role names as
prerequisites come first, then those of ``extras``; what runs afterwards runs in the reverse order.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openpaisdk.protocol.extras import RUNTIME_PLUGIN
from openpaisdk.protocol.model import JobSpec, TaskRole
from openpaisdk.protocol.template import as_text

_CLONE_TRIES = 10
_LONGEST_PAUSE_S = 300
_NOT_PARAMETERS = ("plugin", "failurePolicy", "type", "name", "require")
# What the cluster does by itself, from what the job says elsewhere.
_ELSEWHERE = ("teamwise_storage",)


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin of a role: its name without the prefix, and whether the task goes on when it fails."""

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


def plugin_scripts(role: TaskRole, job: JobSpec) -> tuple[list[str], list[str]]:
    """The scripts that run before and after the role's commands."""
    before: list[str] = []
    after: list[str] = []
    for plugin in plugins_of(role, job):
        starting, ending = _scripts(plugin, job)
        before += [_alone(plugin, script) for script in starting if script.strip()]
        after += [_alone(plugin, script) for script in ending if script.strip()]
    return before, after[::-1]


def _plugin(name: str, parameters: Any, policy: Any) -> Plugin:
    short = name.removeprefix(RUNTIME_PLUGIN).lstrip(".")
    return Plugin(short, parameters if isinstance(parameters, Mapping) else {}, policy == "ignore")


def _alone(plugin: Plugin, script: str) -> str:
    if plugin.ignore_failure:
        said = shlex.quote(f"The plugin {plugin.name} failed; the task goes on, as it was told to.")
        return f"(\nset +o errexit\n{script}\n) || echo {said} >&2"
    return f"(\n{script}\n)"


def _scripts(plugin: Plugin, job: JobSpec) -> tuple[list[str], list[str]]:
    if plugin.name == "cmd":
        return _cmd(plugin.parameters)
    if plugin.name == "git":
        return [_git(plugin.parameters)], []
    if plugin.name == "tensorboard":
        return [_tensorboard(plugin.parameters, job)], []
    if plugin.name in _ELSEWHERE:
        return [], []
    if plugin.name == "ssh":
        return [_say("This cluster does not start an ssh server in the task.")], []
    unknown = _say(f"This cluster does not know the plugin {plugin.name}.")
    return [unknown if plugin.ignore_failure else f"{unknown}\nexit 1"], []


def _say(text: str) -> str:
    return f"echo {shlex.quote(text)} >&2"


def _lines(commands: Any) -> str:
    return "\n".join(str(command) for command in commands) if isinstance(commands, list | tuple) else ""


def _cmd(parameters: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    callbacks = parameters.get("callbacks")
    if not callbacks:
        return [_lines(parameters.get("preCommands"))], [_lines(parameters.get("postCommands"))]
    starts = [_lines(entry.get("commands")) for entry in callbacks if entry.get("event") == "taskStarts"]
    ends = [_lines(entry.get("commands")) for entry in callbacks if entry.get("event") == "taskSucceeds"]
    return starts, ends


def _git(parameters: Mapping[str, Any]) -> str:
    uri = as_text(parameters.get("repo_uri") or "")
    if not uri:
        return f"{_say('The plugin git needs repo_uri, the address of what to clone.')}\nexit 1"
    options = parameters.get("options") or ()
    words = shlex.split(options) if isinstance(options, str) else [as_text(word) for word in options]
    name = uri.rstrip("/").rpartition("/")[2].removesuffix(".git") or "code"
    target = shlex.quote(as_text(parameters.get("clone_dir") or name))
    clone = shlex.join(["git", "clone", *words, "--", uri])
    return (
        f'if [ -e {target} ] && [ -n "$(ls -A {target})" ]; then\n'
        f"  {_say('The plugin git does not clone into a folder that has something in it.')}\n"
        "  exit 1\n"
        "fi\n"
        "tries=1 pause=1\n"
        f"until {clone} {target}; do\n"
        f'  if [ "$tries" -ge {_CLONE_TRIES} ]; then\n'
        f"    {_say('The plugin git gives up.')}\n"
        "    exit 1\n"
        "  fi\n"
        '  sleep "$pause"\n'
        "  tries=$((tries + 1)) pause=$((pause * 2))\n"
        f'  if [ "$pause" -gt {_LONGEST_PAUSE_S} ]; then pause={_LONGEST_PAUSE_S}; fi\n'
        "done"
    )


def _tensorboard(parameters: Mapping[str, Any], job: JobSpec) -> str:
    """In the first task of the first role alone; it ends with the task."""
    folders = parameters.get("logdir")
    folders = folders if isinstance(folders, Mapping) else {}
    spec = shlex.quote(",".join(f"{name}:{as_text(path)}" for name, path in folders.items()))
    port = shlex.quote(as_text(parameters.get("port") or "6006"))
    first = shlex.quote(job.task_roles[0].name)
    return (
        f'if [ "$PAI_CURRENT_TASK_ROLE_NAME" = {first} ] && '
        '[ "$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX" = 0 ]; then\n'
        "  command -v tensorboard >/dev/null 2>&1 || python3 -m pip install -q tensorboard\n"
        f"  tensorboard --logdir_spec={spec} --bind_all --port={port} >/dev/null 2>&1 &\n"
        "fi"
    )
