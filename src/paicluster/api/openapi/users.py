"""Server info, login, tokens, users, groups."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paicluster.api.openapi.operation import (
    PAGE,
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
    max_sources_bytes: int


class AuthnInfo(msgspec.Struct, forbid_unknown_fields=True):
    authn_type: Literal["basic", "OIDC"]
    login_uri: str = msgspec.field(name="loginURI")
    login_method: Literal["post", "get"] = msgspec.field(name="loginURIMethod")


class LoginBody(msgspec.Struct):
    username: Annotated[str, Meta(min_length=1)]
    password: str
    expiration: int | str | UnsetType = UNSET


class LoginResult(WireModel):
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


class LogToken(WireModel):
    token: str


class ApplicationToken(WireModel):
    token: str
    application: Annotated[bool, Meta(extra_json_schema={"enum": [True]})]


class TokenPayload(WireModel):
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
    disabled: bool
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


class OwnUserData(WireModel):
    username: Name
    email: str | UnsetType = UNSET
    new_password: Password | UnsetType = UNSET
    old_password: str | UnsetType = UNSET
    extension: Extension | UnsetType = UNSET


class OwnUserChange(WireModel):
    data: OwnUserData
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


class DisabledBody(WireModel):
    disabled: bool


class DisabledResult(WireModel):
    message: str
    # Jobs of the user that go on.
    unfinished_jobs: int


class SshKeyBody(WireModel):
    """A line of `authorized_keys`."""

    value: str
    title: str | UnsetType = UNSET


class SshKeyRemoval(WireModel):
    value: str


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


class ExtensionValueBody(WireModel):
    data: Any


class DescriptionBody(WireModel):
    description: str


class ExternalNameBody(WireModel):
    external_name: str


Limit = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]


class QuotaAmount(WireModel):
    """What is used of a resource, and its limit; null: not limited."""

    used: Annotated[int, Meta(ge=0)]
    limit: Limit | None


class QuotaResources(WireModel):
    tasks: QuotaAmount
    cpu: QuotaAmount
    memory_mb: QuotaAmount = msgspec.field(name="memoryMB")
    gpu: QuotaAmount
    storage_bytes: QuotaAmount


class QuotaDetails(WireModel):
    kind: Literal["user", "group"]
    name: str
    resources: QuotaResources


class UserCertificate(WireModel):
    """PEM texts; the cluster does not keep the key."""

    certificate: str
    key: str
    serial: str
    # Milliseconds since the epoch.
    expires: int


class QuotaList(WireModel):
    quotas: list[QuotaDetails]


class QuotaBody(WireModel):
    """Limits to set; null removes one, and those not sent stay."""

    tasks: Limit | UnsetType | None = UNSET
    cpu: Limit | UnsetType | None = UNSET
    memory_mb: Limit | UnsetType | None = msgspec.field(name="memoryMB", default=UNSET)
    gpu: Limit | UnsetType | None = UNSET
    storage_bytes: Limit | UnsetType | None = UNSET


def _change(summary: str, tag: str, kind: Any, *errors: int) -> Operation:
    return Operation(summary, tag, {201: Message}, (403, *errors), body=json_or_form(kind))


class BrowserSignIn(msgspec.Struct):
    username: str | UnsetType = UNSET
    password: str | UnsetType = UNSET
    code: str | UnsetType = UNSET


class BrowserSession(WireModel):
    user: str
    admin: bool
    # The half of the session's token that is not in the cookie; sent as `X-PAI-Session-Proof`.
    proof: str


class SignInLink(WireModel):
    url: str


OPERATIONS: dict[str, Operation] = {
    "v2.login.banner": Operation("Banner of API version 2", "api", {200: Text()}, token=False),
    "v2.login.info": Operation(
        "Name, version and login method of the cluster", "api", {200: Info}, token=False
    ),
    "v2.login.authn_info": Operation("How to log in", "authn", {200: AuthnInfo}, token=False),
    "v2.login.login": Operation(
        "Log in", "authn", {200: LoginResult}, (401,), body=json_or_form(LoginBody), token=False
    ),
    "v2.login.logout": Operation("Log out: revoke the token", "authn", {200: Message}, (403,)),
    "v2.login.list_tokens": Operation(
        "List the caller's tokens",
        "token",
        {200: TokenList},
        (403,),
        query=(
            Query(
                "details",
                description="With kind, name and times of each token; `only`: without the tokens.",
            ),
            *PAGE,
        ),
    ),
    "v2.login.application_token": Operation(
        "Issue an application token", "token", {200: ApplicationToken}, (400, 403, 413)
    ),
    "v2.login.check_token": Operation("Check a token", "token", {200: TokenPayload}),
    "v2.login.revoke_token": Operation("Revoke a token", "token", {200: Message}, (403,)),
    "v2.login.log_token": Operation(
        "Issue a token for the log manager",
        "log",
        {200: LogToken},
        (401,),
        body=json_or_form(LoginBody),
        token=False,
    ),
    "v2.browser_sessions.sign_in": Operation(
        "Start a session in a browser, with a password or the code of a one-time link; sets a cookie",
        "authn",
        {200: BrowserSession},
        (401, 403),
        body=json_or_form(BrowserSignIn),
        token=False,
    ),
    "v2.browser_sessions.sign_out": Operation(
        "End the session of this browser, or of all browsers",
        "authn",
        {200: Message},
        (403,),
        query=(Query("everywhere", Literal["true", "false"]),),
    ),
    "v2.browser_sessions.issue_link": Operation(
        "Issue a link that signs one browser in, once", "authn", {200: SignInLink}, (403,)
    ),
    # -- users
    "v2.users.list_users": Operation("List users", "user", {200: list[UserInfo]}, query=PAGE),
    "v2.users.one_user": Operation("Get a user", "user", {200: UserInfo}, (400,)),
    "v2.users.create_user": _change("Create a user", "user", NewUser, 404, 409),
    "v2.users.update_user": _change("Change a user", "user", UserChange, 404, 409),
    "v2.users.update_me": _change("Change the calling user", "user", OwnUserChange, 404),
    "v2.users.delete_user": Operation("Delete a user", "user", {200: Message}, (403,)),
    "v2.users.update_extension": _change("Change a user's extension", "user", ExtensionBody),
    "v2.users.update_virtual_clusters": _change(
        "Change a user's virtual clusters", "user", VirtualClustersBody
    ),
    "v2.users.update_password": _change("Change a user's password", "user", PasswordBody),
    "v2.users.update_email": _change("Change a user's email address", "user", EmailBody),
    "v2.users.update_admin": _change("Grant or revoke administrator rights", "user", AdminBody),
    "v2.users.update_disabled": Operation(
        "Disable or enable a user", "user", {201: DisabledResult}, (403,), body=json_or_form(DisabledBody)
    ),
    "v2.users.add_ssh_key": _change("Add a public key to a user's profile", "user", SshKeyBody, 409),
    "v2.users.remove_ssh_key": _change("Remove a public key from a user's profile", "user", SshKeyRemoval),
    "v2.users.add_group": _change("Add a user to a group", "user", GroupBody),
    "v2.users.remove_group": _change("Remove a user from a group", "user", GroupBody),
    "v2.users.set_groups": _change("Set a user's groups", "user", GroupsBody),
    # -- certificates
    "v2.certificates.issue": Operation(
        "Issue a certificate of a user", "user", {201: UserCertificate}, (400, 403)
    ),
    "v2.certificates.revoke": Operation("Revoke all certificates of a user", "user", {200: Message}, (403,)),
    # -- quotas
    "v2.quotas.own_quotas": Operation(
        "Use of the caller's quota and of those of the caller's groups", "quota", {200: QuotaList}
    ),
    "v2.quotas.user_quota": Operation("Use of a user's quota", "quota", {200: QuotaDetails}, (403,)),
    "v2.quotas.group_quota": Operation("Use of a group's quota", "quota", {200: QuotaDetails}, (400, 403)),
    "v2.quotas.set_user_quota": _change("Set limits of a user's quota", "quota", QuotaBody),
    "v2.quotas.set_group_quota": _change("Set limits of a group's quota", "quota", QuotaBody),
    # -- groups
    "v2.groups.list_groups": Operation("List groups", "group", {200: list[Group]}, query=PAGE),
    "v2.groups.one_group": Operation("Get a group", "group", {200: Group}, (400,)),
    "v2.groups.members": Operation(
        "List the members of a group", "group", {200: list[Member]}, (403,), query=PAGE
    ),
    "v2.groups.create_group": _change("Create a group", "group", NewGroup, 409),
    "v2.groups.update_group": _change("Change a group", "group", GroupChange),
    "v2.groups.delete_group": Operation("Delete a group", "group", {200: Message}, (400, 403)),
    "v2.groups.update_extension": _change("Change a group's extension", "group", ExtensionBody),
    "v2.groups.update_extension_at": _change(
        "Set one value in a group's extension", "group", ExtensionValueBody
    ),
    "v2.groups.update_description": _change("Change a group's description", "group", DescriptionBody),
    "v2.groups.update_external_name": _change("Change a group's external name", "group", ExternalNameBody),
}
