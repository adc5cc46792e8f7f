"""Secret values outside of ``secrets``, replaced by references to it.

What is in ``secrets`` is sealed and masked; everything else of a job is stored and shown as it is. A YAML
alias may put a value of ``secrets`` into another place, and the password of an image's registry may be
written where it is used. A reference (``<% $secrets.name %>``) gives the task the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paiprotocol.jobs.document import Document
from paiprotocol.jobs.problems import Path, Problem, is_full, key_path
from paiprotocol.jobs.template import as_text, is_only_references, references, render

_SECRETS = "secrets"
_PASSWORD = "registry_password"


def is_rendered(path: Path) -> bool:
    """Whether a text at this path of a version 2 job reaches tasks with its ``$secrets`` inserted, and is
    used in no other way."""
    top = path[0] if path else ""
    if top == "parameters":
        # The cluster itself reads this one.
        return path[1:2] != ("work_directory",)
    if top == "taskRoles":
        return len(path) == 4 and path[2] == "commands"
    if top == "deployments":
        return len(path) == 6 and path[4] in ("preCommands", "postCommands")
    return top == "prerequisites" and len(path) == 4 and path[2] == "auth"


def replace_aliases(document: Document, is_rendered: Callable[[Path], bool] = is_rendered) -> list[Problem]:
    """Replace, in the data of a document, values that YAML aliases share with ``secrets``.

    Returns a problem for each where no reference can stand.
    """
    data, root = document.data, document.yaml_root
    problems: list[Problem] = []
    if root is None or "*" not in (document.text or "") or not isinstance(data, dict) or _SECRETS not in data:
        return problems
    from paiprotocol.jobs.yaml_nodes import aliased_scalars

    references: dict[Path, str] = {}
    for path, source, at_key in aliased_scalars(root, _SECRETS):
        parent = _at(data, path[:-1])
        if not at_key and (parent[path[-1]] is None or isinstance(parent[path[-1]], bool)):
            continue
        if source not in references:
            references[source] = _reference(source, data[_SECRETS])
        if references[source] and is_rendered(path) and not at_key:
            parent[path[-1]] = references[source]
        elif not is_full(problems):
            # The name of a key is the value of the secret.
            problems.append(_problem(path[:-1] if at_key else path, source))
    return problems


def _at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def _reference(source: Path, secrets: Any) -> str:
    """The reference to a value of ``secrets``; empty if its name cannot be written in one."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in source)
    reference = f"<% ${_SECRETS}{name} %>"
    return reference if render(reference, {_SECRETS: secrets}) == as_text(_at(secrets, source)) else ""


def _problem(path: Path, source: Path) -> Problem:
    name = key_path((_SECRETS, *source))
    return Problem(
        path,
        f"is an alias of {name}, which would be stored and shown unencrypted here",
        suggestion=f"write <% ${name} %> in the command that needs it",
    )


def is_secret_reference(password: str) -> bool:
    """Whether a password is written as references to ``secrets``. One that only contains ``<%`` is not."""
    return is_only_references(password, _SECRETS)


def replace_passwords(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """A validated job whose registry passwords are in ``secrets``; None if it has none elsewhere."""
    given = data.get(_SECRETS) or {}
    secrets = dict(given)
    prerequisites = list(data.get("prerequisites") or ())
    names: dict[str, str] = {}
    for index, item in enumerate(prerequisites):
        auth = item.get("auth")
        password = auth.get("password") if isinstance(auth, dict) else None
        if not isinstance(password, str) or not password or is_secret_reference(password):
            continue
        if password not in names:
            names[password] = _free_name(secrets)
            secrets[names[password]] = _rendered(password, given)
        reference = f"<% ${_SECRETS}.{names[password]} %>"
        prerequisites[index] = {**item, "auth": {**auth, "password": reference}}
    return {**data, "prerequisites": prerequisites, _SECRETS: secrets} if names else None


def _rendered(password: str, secrets: Mapping[str, Any]) -> str:
    """The password as the task gets it: references in a secret are not replaced."""
    if not any(scope == _SECRETS for scope, _ in references(password)):
        return password
    return render(password, {_SECRETS: secrets})


def _free_name(secrets: Mapping[str, Any]) -> str:
    name, number = _PASSWORD, 2
    while name in secrets:
        name, number = f"{_PASSWORD}_{number}", number + 1
    return name
