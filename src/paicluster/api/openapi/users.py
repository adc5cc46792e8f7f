"""Who one is: info, logging in, tokens, users, groups."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paicluster.api.openapi.operation import (
    FORM,
    JSON,
    PAGE,
    Body,
    Message,
    Operation,
    Query,
    Text,
    WireModel,
    json_or_form,
)


class Info(WireModel):
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


class LoggedIn(WireModel):
    user: str
    token: str
    admin: bool
    has_git_hub_pat: bool = msgspec.field(name="hasGitHubPAT")


class TokenDetails(WireModel):
    id: str
    name: str
    application: bool
    created_time: int
    expiration_time: int | None


class TokenList(WireModel):
    tokens: list[str]
    details: list[TokenDetails] | UnsetType = UNSET


class TokenName(WireModel):
    name: str | UnsetType = UNSET


class LogToken(WireModel):
    token: str


class ApplicationToken(WireModel):
    token: str
    application: Annotated[bool, Meta(extra_json_schema={"enum": [True]})]


class CheckedToken(WireModel):
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


class UserInfo(WireModel):
    username: str
    grouplist: list[str]
    email: str
    extension: Extension
    admin: bool
    virtual_cluster: list[str]
    storage_config: list[str]


class NewUser(WireModel):
    username: Name
    password: Password
    email: str | UnsetType = UNSET
    admin: bool | UnsetType = UNSET
    virtual_cluster: list[GroupName] | UnsetType = UNSET
    extension: Extension | UnsetType = UNSET


class UserData(WireModel):
    username: Name
    email: str | UnsetType = UNSET
    virtual_cluster: list[GroupName] | UnsetType = UNSET
    admin: bool | UnsetType = UNSET
    password: Password | UnsetType = UNSET
    extension: Extension | UnsetType = UNSET


class UserChange(WireModel):
    data: UserData
    patch: bool | UnsetType = UNSET


class OwnData(WireModel):
    username: Name
    email: str | UnsetType = UNSET
    new_password: Password | UnsetType = UNSET
    old_password: str | UnsetType = UNSET
    extension: Extension | UnsetType = UNSET


class OwnChange(WireModel):
    data: OwnData
    patch: bool | UnsetType = UNSET


class ExtensionBody(WireModel):
    extension: Extension


class VirtualClustersBody(WireModel):
    virtual_cluster: list[GroupName]


class PasswordBody(WireModel):
    new_password: Password
    old_password: str | UnsetType = UNSET


class EmailBody(WireModel):
    email: str


class AdminBody(WireModel):
    admin: bool


class GroupBody(WireModel):
    groupname: GroupName


class GroupsBody(WireModel):
    grouplist: list[GroupName]


class Group(WireModel):
    groupname: str
    description: str
    external_name: str
    extension: Extension


class NewGroup(WireModel):
    groupname: GroupName
    description: str | UnsetType = UNSET
    external_name: str | UnsetType = UNSET
    extension: Extension | UnsetType = UNSET


class GroupChange(WireModel):
    data: NewGroup
    patch: bool | UnsetType = UNSET


class Member(WireModel):
    username: str
    cluster_admin: bool


class AnyBody(WireModel):
    data: Any


class DescriptionBody(WireModel):
    description: str


class ExternalNameBody(WireModel):
    external_name: str


def _change(summary: str, tag: str, kind: Any, *errors: int) -> Operation:
    return Operation(summary, tag, {201: Message}, (403, *errors), body=json_or_form(kind))


OPTIONAL_NAME = Body({JSON: TokenName, FORM: TokenName}, required=False)

OPERATIONS: dict[str, Operation] = {
    "v2.login.banner": Operation("That this is version 2", "api", {200: Text()}, token=False),
    "v2.login.info": Operation("What this cluster is", "api", {200: Info}, token=False),
    "v2.login.authn_info": Operation("How to log in", "authn", {200: AuthnInfo}, token=False),
    "v2.login.login": Operation("Log in", "authn", {200: LoggedIn}, body=json_or_form(Login), token=False),
    "v2.login.logout": Operation("Log out: the token ends", "authn", {200: Message}, (403,)),
    "v2.login.list_tokens": Operation(
        "One's tokens",
        "token",
        {200: TokenList},
        (403,),
        query=(Query("details", about="Its presence asks for more about each."), *PAGE),
    ),
    "v2.login.application_token": Operation(
        "A token for a program", "token", {200: ApplicationToken}, (403,)
    ),
    "v2.login.check_token": Operation("Whether a token holds", "token", {200: CheckedToken}),
    "v2.login.revoke_token": Operation("End a token", "token", {200: Message}, (403,)),
    "v2.login.log_token": Operation(
        "A token for a log manager", "log", {200: LogToken}, body=json_or_form(Login), token=False
    ),
    # -- users
    "v2.users.list_users": Operation("Everybody", "user", {200: list[UserInfo]}, query=PAGE),
    "v2.users.one_user": Operation("A user", "user", {200: UserInfo}, (400,)),
    "v2.users.create_user": _change("Make a user", "user", NewUser, 404, 409),
    "v2.users.update_user": _change("Change a user", "user", UserChange, 404, 409),
    "v2.users.update_me": _change("Change oneself", "user", OwnChange, 404),
    "v2.users.delete_user": Operation("Remove a user", "user", {200: Message}, (403,)),
    "v2.users.update_extension": _change("Change a user's extension", "user", ExtensionBody),
    "v2.users.update_virtual_clusters": _change(
        "Change a user's virtual clusters", "user", VirtualClustersBody
    ),
    "v2.users.update_password": _change("Change a user's password", "user", PasswordBody),
    "v2.users.update_email": _change("Change a user's address", "user", EmailBody),
    "v2.users.update_admin": _change("Make a user an administrator, or not", "user", AdminBody),
    "v2.users.add_group": _change("Put a user into a group", "user", GroupBody),
    "v2.users.remove_group": _change("Take a user out of a group", "user", GroupBody),
    "v2.users.set_groups": _change("Set a user's groups", "user", GroupsBody),
    # -- groups
    "v2.groups.list_groups": Operation("All groups", "group", {200: list[Group]}, query=PAGE),
    "v2.groups.one_group": Operation("A group", "group", {200: Group}, (400,)),
    "v2.groups.members": Operation("Who is in a group", "group", {200: list[Member]}, (403,), query=PAGE),
    "v2.groups.create_group": _change("Make a group", "group", NewGroup, 409),
    "v2.groups.update_group": _change("Change a group", "group", GroupChange),
    "v2.groups.delete_group": Operation("Remove a group", "group", {200: Message}, (400, 403)),
    "v2.groups.update_extension": _change("Change a group's extension", "group", ExtensionBody),
    "v2.groups.update_extension_at": _change("Change a part of it", "group", AnyBody),
    "v2.groups.update_description": _change("Change a group's description", "group", DescriptionBody),
    "v2.groups.update_external_name": _change("Change a group's other name", "group", ExternalNameBody),
}
