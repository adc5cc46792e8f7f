"""Cross-reference checks of a job: names that must exist, names that must be unique."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from paiprotocol.jobs.extras import OPENPAISDK, RUNTIME_PLUGIN
from paiprotocol.jobs.problems import MAX_HINTS, MAX_PROBLEMS, Path, Problem, did_you_mean, shorten
from paiprotocol.jobs.template import SCOPES, references, resolves

_SELECTED = (("dockerImage", "dockerimage"), ("data", "data"), ("output", "output"), ("script", "script"))


def check(data: Any) -> list[Problem]:
    """All undefined or duplicate names. Parts of the wrong type are skipped: the schema reports them."""
    return _ReferenceChecker(data).run() if isinstance(data, dict) else []


def check_array(data: Any) -> list[Problem]:
    """The tasks of an array beyond its values, which would have none, or those of another task again.

    Only of new jobs: one that was accepted before may have them.
    """
    extras = _mapping(_mapping(data).get("extras"))
    ours, roles = _mapping(extras.get(OPENPAISDK)), _mapping(_mapping(data).get("taskRoles"))
    kinds = (("arrayRows", "row", min), ("array", "combination", prod))
    for key, what, count_of in kinds:
        lengths = [len(_sequence(values)) for values in _mapping(ours.get(key)).values()]
        if not lengths or len(roles) != 1:
            continue
        ((name, role),) = roles.items()
        count, instances = count_of(lengths), _mapping(role).get("instances", 1)
        if not _is_number(instances) or instances <= count:
            return []
        whole = f"{count} {what}{'' if count == 1 else 's'} of values"
        message = f"{instances} tasks are more than the {whole} in extras.{OPENPAISDK}.{key}"
        advice = "submit the command again with other values (pai sub --array)"
        return [Problem(("taskRoles", name, "instances"), message, suggestion=advice)]
    return []


class _ReferenceChecker:
    __slots__ = ("by_type", "counts", "data", "names", "problems", "roles")

    def __init__(self, data: dict[str, Any]):
        self.data = data
        self.problems: list[Problem] = []
        self.counts = {"error": 0, "remark": 0}
        self.roles = _mapping(data.get("taskRoles"))
        self.by_type: dict[str, dict[str, Any]] = {}
        self.names: set[str] = set()

    def run(self) -> list[Problem]:
        self.prerequisites()
        deployment = self.deployments()
        for name, role in self.roles.items():
            if isinstance(role, dict):
                self.role(name, role)
                self.templates(name, role, deployment)
        self.extras()
        return self.problems

    def prerequisites(self) -> None:
        items = _sequence(self.data.get("prerequisites"))
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                continue
            kind, name = item.get("type"), item.get("name")
            if not isinstance(kind, str) or not isinstance(name, str):
                continue
            known = self.by_type.setdefault(kind, {})
            if name in known:
                message = f'there is already a prerequisite "{shorten(name)}" of type {shorten(kind)}'
                self.add(Problem(("prerequisites", index, "name"), message))
            known[name] = item
            self.names.add(name)
        for index, item in enumerate(items):
            if isinstance(item, dict) and "require" in item:
                for position, name in enumerate(_sequence(item["require"])):
                    if name not in self.names:
                        path = ("prerequisites", index, "require", position)
                        self.report_undefined(path, "prerequisite", name, self.names, soft=True)

    def deployments(self) -> dict[str, Any]:
        """Check all deployments; returns the taskRoles of the active one."""
        items = self.data.get("deployments")
        active = _mapping(self.data.get("defaults")).get("deployment")
        if items is None and active is None:
            return {}
        by_name: dict[str, Any] = {}
        for index, item in enumerate(_sequence(items)):
            name = _mapping(item).get("name")
            if not isinstance(name, str):
                continue
            if name in by_name:
                message = f'there is already a deployment "{shorten(name)}"'
                self.add(Problem(("deployments", index, "name"), message))
            by_name[name] = _mapping(item.get("taskRoles"))
            for role in by_name[name]:
                if role not in self.roles:
                    path = ("deployments", index, "taskRoles", role)
                    self.report_undefined(path, "task role", role, self.roles, at_key=True)
        if isinstance(active, str) and active not in by_name:
            self.report_undefined(("defaults", "deployment"), "deployment", active, by_name)
        return by_name.get(active, {}) if isinstance(active, str) else {}

    def role(self, name: str, role: dict[str, Any]) -> None:
        for key, kind in _SELECTED:
            name_used = role.get(key)
            if isinstance(name_used, str) and name_used not in self.by_type.get(kind, ()):
                self.report_undefined(
                    ("taskRoles", name, key),
                    f"prerequisite of type {kind}",
                    name_used,
                    self.by_type.get(kind, ()),
                )
        if "prerequisites" in role:
            for index, name_used in enumerate(_sequence(role["prerequisites"])):
                if isinstance(name_used, str) and name_used not in self.names:
                    self.report_undefined(
                        ("taskRoles", name, "prerequisites", index), "prerequisite", name_used, self.names
                    )
        if "completion" in role:
            instances = role.get("instances", 1)
            for key, count in _mapping(role["completion"]).items():
                if _is_number(count) and _is_number(instances) and count > instances:
                    message = (
                        f"{count} is more than the {instances} instances of the role, which is never reached"
                    )
                    self.add(Problem(("taskRoles", name, "completion", key), message, level="note"))
        retries = role.get("taskRetryCount")
        if retries and _mapping(self.data.get("extras")).get("gangAllocation", True) is not False:
            message = "has no effect unless extras.gangAllocation is false"
            self.add(Problem(("taskRoles", name, "taskRetryCount"), message, level="note"))

    def templates(self, name: str, role: dict[str, Any], deployment: dict[str, Any]) -> None:
        deployment_role = _mapping(deployment.get(name)) if deployment else {}
        scopes: dict[str, Any] | None = None
        parts: list[tuple[Path, Any]] = [(("taskRoles", name, "commands"), role.get("commands"))]
        if deployment_role:
            index = self._active_index()
            for key in ("preCommands", "postCommands"):
                parts.append((("deployments", index, "taskRoles", name, key), deployment_role.get(key)))
        for path, commands in parts:
            for position, command in enumerate(_sequence(commands)):
                if not isinstance(command, str) or "<%" not in command:
                    continue
                if scopes is None:
                    scopes = self.scopes(role)
                self.command((*path, position), command, scopes)

    def scopes(self, role: dict[str, Any]) -> dict[str, Any]:
        scopes: dict[str, Any] = {
            "parameters": _mapping(self.data.get("parameters")),
            "secrets": _mapping(self.data.get("secrets")),
        }
        for kind in ("data", "output", "script"):
            name_used = role.get(kind)
            if isinstance(name_used, str) and name_used in self.by_type.get(kind, ()):
                scopes[kind] = self.by_type[kind][name_used]
        return scopes

    def command(self, path: Path, command: str, scopes: dict[str, Any]) -> None:
        for scope, name in references(command):
            if scope not in SCOPES:
                hint = did_you_mean(f"${scope}", [f"${known}" for known in SCOPES])
                self.warn(path, f'there is no scope "${shorten(scope)}"', hint)
            elif scope not in scopes:
                self.warn(path, f'the role selects no {scope}, so "{shorten(name)}" has no value')
            elif not resolves(name, scopes):
                known = (f"${scope}.{key}" for key in scopes[scope])
                self.warn(path, f'"{shorten(name)}" has no value', self.hint(name, known))

    def extras(self) -> None:
        extras = _mapping(self.data.get("extras"))
        hived = _mapping(extras.get("hivedScheduler")) if extras else {}
        for name, role in _mapping(hived.get("taskRoles")).items():
            path: Path = ("extras", "hivedScheduler", "taskRoles", name)
            if name not in self.roles:
                self.report_undefined(path, "task role", name, self.roles, at_key=True)
            if isinstance(role, dict) and role.get("skuType") and role.get("pinnedCellId"):
                self.add(Problem(path, "skuType and pinnedCellId exclude each other"))
        for index, plugin in enumerate(_sequence(extras.get(RUNTIME_PLUGIN))):
            if isinstance(plugin, dict) and "taskroles" in plugin:
                for position, name in enumerate(_sequence(plugin["taskroles"])):
                    if isinstance(name, str) and name not in self.roles:
                        path = ("extras", RUNTIME_PLUGIN, index, "taskroles", position)
                        self.report_undefined(path, "task role", name, self.roles, soft=True)

    def _active_index(self) -> int:
        active = self.data["defaults"]["deployment"]
        items = enumerate(_sequence(self.data.get("deployments")))
        return next(index for index, item in items if _mapping(item).get("name") == active)

    def report_undefined(
        self,
        path: Path,
        what: str,
        name: Any,
        choices: Iterable[str],
        *,
        soft: bool = False,
        at_key: bool = False,
    ) -> None:
        message = f'there is no {what} "{shorten(str(name))}"'
        hint = self.hint(str(name), choices) if choices else f"the job has no {what}"
        level = "soft" if soft else "error"
        self.add(Problem(path, message, suggestion=hint, level=level, at_key=at_key))  # type: ignore[arg-type]

    def hint(self, word: str, choices: Iterable[str]) -> str:
        # Problems beyond the limit are not shown, and each hint costs a comparison with every name.
        return did_you_mean(word, choices) if len(self.problems) < MAX_HINTS else ""

    def add(self, problem: Problem) -> None:
        # Errors and remarks are counted apart: remarks must not hide an error.
        counted = "error" if problem.level == "error" else "remark"
        self.counts[counted] += 1
        if self.counts[counted] <= MAX_PROBLEMS + 1:
            self.problems.append(problem)

    def warn(self, path: Path, message: str, hint: str = "") -> None:
        self.add(Problem(path, message, suggestion=hint, level="soft"))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
