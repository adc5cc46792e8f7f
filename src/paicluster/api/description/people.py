"""Who one is: info, logging in, tokens, users, groups."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paicluster.api.description.operation import (
    FORM,
    JSON,
    PAGE,
    Body,
    Operation,
    Query,
    Said,
    Text,
    Wire,
    json_or_form,
)


class Info(Wire):
    name: str
    version: str | None
    launcher_type: Literal["yarn", "k8s"]
    authn_method: Literal["basic", "OIDC"]
    containers: bool


class AuthnInfo(msgspec.Struct, forbid_unknown_fields=True):
    authn_type: Literal["basic", "OIDC"]
    login_uri: str = msgspec.field(name="loginURI")
    login_method: Literal["post", "get"] = msgspec.field(name="loginURIMethod")


class Login(msgspec.Struct):
    username: Annotated[str, Meta(min_length=1)]
    password: str
    expiration: int | str | UnsetType = UNSET


class LoggedIn(Wire):
    user: str
    token: str
    admin: bool
    has_git_hub_pat: bool = msgspec.field(name="hasGitHubPAT")


class TokenDetails(Wire):
    id: str
    name: str
    application: bool
    created_time: int
    expiration_time: int | None


class Tokens(Wire):
    tokens: list[str]
    details: list[TokenDetails] | UnsetType = UNSET


class TokenName(Wire):
    name: str | UnsetType = UNSET


class LogToken(Wire):
    token: str


class ApplicationToken(Wire):
    token: str
    application: Annotated[bool, Meta(extra_json_schema={"enum": [True]})]


class CheckedToken(Wire):
    username: str
    admin: bool
    application: bool
    job_specific: bool
    jti: str
    iat: int
    exp: int | UnsetType = UNSET


Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]+$", max_length=255)]
GroupName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]+$", max_length=255)]
Password = Annotated[str, Meta(min_length=6)]
Extension = dict[str, Any]


class UserInfo(Wire):
    username: str
    grouplist: list[str]
    email: str
    extension: Extension
    admin: bool
    virtual_cluster: list[str]
    storage_config: list[str]


class NewUser(Wire):
    username: Name
    password: Password
    email: str | UnsetType = UNSET
    admin: bool | UnsetType = UNSET
    virtual_cluster: list[GroupName] | UnsetType = UNSET
    extension: Extension | UnsetType = UNSET


class UserData(Wire):
    username: Name
    email: str | UnsetType = UNSET
    virtual_cluster: list[GroupName] | UnsetType = UNSET
    admin: bool | UnsetType = UNSET
    password: Password | UnsetType = UNSET
    extension: Extension | UnsetType = UNSET


class UserChange(Wire):
    data: UserData
    patch: bool | UnsetType = UNSET


class OwnData(Wire):
    username: Name
    email: str | UnsetType = UNSET
    new_password: Password | UnsetType = UNSET
    old_password: str | UnsetType = UNSET
    extension: Extension | UnsetType = UNSET


class OwnChange(Wire):
    data: OwnData
    patch: bool | UnsetType = UNSET


class GivenExtension(Wire):
    extension: Extension


class GivenVirtualClusters(Wire):
    virtual_cluster: list[GroupName]


class GivenPassword(Wire):
    new_password: Password
    old_password: str | UnsetType = UNSET


class GivenEmail(Wire):
    email: str


class GivenAdmin(Wire):
    admin: bool


class GivenGroup(Wire):
    groupname: GroupName


class GivenGroups(Wire):
    grouplist: list[GroupName]


class Group(Wire):
    groupname: str
    description: str
    external_name: str
    extension: Extension


class NewGroup(Wire):
    groupname: GroupName
    description: str | UnsetType = UNSET
    external_name: str | UnsetType = UNSET
    extension: Extension | UnsetType = UNSET


class GroupChange(Wire):
    data: NewGroup
    patch: bool | UnsetType = UNSET


class Member(Wire):
    username: str
    cluster_admin: bool


class GivenAnything(Wire):
    data: Any


class GivenDescription(Wire):
    description: str


class GivenExternalName(Wire):
    external_name: str


def _change(summary: str, tag: str, kind: Any, *errors: int) -> Operation:
    return Operation(summary, tag, {201: Said}, (403, *errors), body=json_or_form(kind))


OPTIONAL_NAME = Body({JSON: TokenName, FORM: TokenName}, required=False)

OPERATIONS: dict[str, Operation] = {
    "v2.authn.banner": Operation("That this is version 2", "api", {200: Text()}, token=False),
    "v2.authn.info": Operation("What this cluster is", "api", {200: Info}, token=False),
    "v2.authn.authn_info": Operation("How to log in", "authn", {200: AuthnInfo}, token=False),
    "v2.authn.login": Operation("Log in", "authn", {200: LoggedIn}, body=json_or_form(Login), token=False),
    "v2.authn.logout": Operation("Log out: the token ends", "authn", {200: Said}, (403,)),
    "v2.authn.list_tokens": Operation(
        "One's tokens",
        "token",
        {200: Tokens},
        (403,),
        query=(Query("details", about="Its presence asks for more about each."), *PAGE),
    ),
    "v2.authn.application_token": Operation(
        "A token for a program", "token", {200: ApplicationToken}, (403,)
    ),
    "v2.authn.check_token": Operation("Whether a token holds", "token", {200: CheckedToken}),
    "v2.authn.revoke_token": Operation("End a token", "token", {200: Said}, (403,)),
    "v2.authn.log_token": Operation(
        "A token for a log manager", "log", {200: LogToken}, body=json_or_form(Login), token=False
    ),
    # -- users
    "v2.users.list_users": Operation("Everybody", "user", {200: list[UserInfo]}, query=PAGE),
    "v2.users.one_user": Operation("A user", "user", {200: UserInfo}, (400,)),
    "v2.users.create_user": _change("Make a user", "user", NewUser, 404, 409),
    "v2.users.update_user": _change("Change a user", "user", UserChange, 404, 409),
    "v2.users.update_me": _change("Change oneself", "user", OwnChange, 404),
    "v2.users.delete_user": Operation("Remove a user", "user", {200: Said}, (403,)),
    "v2.users.update_extension": _change("Change a user's extension", "user", GivenExtension),
    "v2.users.update_virtual_clusters": _change(
        "Change a user's virtual clusters", "user", GivenVirtualClusters
    ),
    "v2.users.update_password": _change("Change a user's password", "user", GivenPassword),
    "v2.users.update_email": _change("Change a user's address", "user", GivenEmail),
    "v2.users.update_admin": _change("Make a user an administrator, or not", "user", GivenAdmin),
    "v2.users.add_group": _change("Put a user into a group", "user", GivenGroup),
    "v2.users.remove_group": _change("Take a user out of a group", "user", GivenGroup),
    "v2.users.set_groups": _change("Set a user's groups", "user", GivenGroups),
    # -- groups
    "v2.groups.list_groups": Operation("All groups", "group", {200: list[Group]}, query=PAGE),
    "v2.groups.one_group": Operation("A group", "group", {200: Group}, (400,)),
    "v2.groups.members": Operation("Who is in a group", "group", {200: list[Member]}, (403,), query=PAGE),
    "v2.groups.create_group": _change("Make a group", "group", NewGroup, 409),
    "v2.groups.update_group": _change("Change a group", "group", GroupChange),
    "v2.groups.delete_group": Operation("Remove a group", "group", {200: Said}, (400, 403)),
    "v2.groups.update_extension": _change("Change a group's extension", "group", GivenExtension),
    "v2.groups.update_extension_at": _change("Change a part of it", "group", GivenAnything),
    "v2.groups.update_description": _change("Change a group's description", "group", GivenDescription),
    "v2.groups.update_external_name": _change("Change a group's other name", "group", GivenExternalName),
}
