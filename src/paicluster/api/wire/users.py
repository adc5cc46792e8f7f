"""Server info, login, tokens, users, groups."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paicluster.api.wire import body_decoder
from paicluster.api.wire.base import GroupName, Name, WireModel
from paicluster.api.wire.body_decoder import Field
from paicluster.auth.tokens import LOGIN_S
from paiprotocol.errors import InvalidParameters


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


# A short one is a wrong one like any other: how long passwords are is for those who set one.
_read_password = partial(body_decoder.text, min_length=1)
# Validated and then ignored, as in OpenPAI: the cluster decides how long a session lasts.
_read_expiration = partial(body_decoder.number, minimum=60, maximum=LOGIN_S)


class LoginBody(msgspec.Struct):
    username: Annotated[str, Meta(min_length=1)]
    password: Annotated[str, Meta(extra={"read": _read_password})]
    expiration: Annotated[int | str, Meta(extra={"read": _read_expiration})] | UnsetType = UNSET


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


# A token for longer than ten years may as well have no end.
_MAX_LIFETIME_S = 10 * 366 * 24 * 3600


class NewApplicationToken(msgspec.Struct):
    """Our addition: ``name`` identifies the token later, and it is valid for ``expiration`` seconds."""

    name: str | UnsetType = UNSET
    expiration: Annotated[float, Meta(ge=60, le=_MAX_LIFETIME_S)] | UnsetType = UNSET


class ApplicationToken(WireModel):
    token: str
    application: Annotated[bool, Meta(extra_json_schema={"enum": [True]})]


class TokenPayload(WireModel, kw_only=True):
    username: str
    # A token of PaddleCloud's clients has none of these.
    application: bool | UnsetType = UNSET
    job_specific: bool | UnsetType = UNSET
    jti: str | UnsetType = UNSET
    iat: int | UnsetType = UNSET
    exp: int | UnsetType = UNSET
    # Of a command for administrators on the server's own machine.
    local_admin: bool | UnsetType = UNSET
    admin: bool


Password = Annotated[str, Meta(min_length=6)]
Email = Annotated[str, Meta(extra={"read": body_decoder.email})]
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
    email: Email | UnsetType = UNSET
    admin: bool | UnsetType = UNSET
    virtual_cluster: list[GroupName] | UnsetType = UNSET
    extension: Extension | UnsetType = UNSET


class UserData(WireModel):
    username: Name
    email: Email | UnsetType = UNSET
    virtual_cluster: list[GroupName] | UnsetType = UNSET
    admin: bool | UnsetType = UNSET
    password: Password | UnsetType = UNSET
    extension: Extension | UnsetType = UNSET


class UserChange(WireModel, kw_only=True):
    patch: bool | UnsetType = UNSET
    data: UserData

    @staticmethod
    def is_required(path: str, read: Mapping[str, Any]) -> bool:
        return path.startswith("data.") and not read.get("patch")


class OwnUserData(WireModel):
    username: Name
    email: Email | UnsetType = UNSET
    new_password: Password | UnsetType = UNSET
    old_password: str | UnsetType = UNSET
    extension: Extension | UnsetType = UNSET


class OwnUserChange(WireModel, kw_only=True):
    patch: bool | UnsetType = UNSET
    data: OwnUserData

    @staticmethod
    def is_required(path: str, read: Mapping[str, Any]) -> bool:
        # The extension never is: OpenPAI's JavaScript SDK does not send it.
        if path == "data.oldPassword" and "new_password" in read:
            return True
        return path in ("data.email", "data.newPassword", "data.oldPassword") and not read.get("patch")


class ExtensionBody(WireModel):
    extension: Extension


class VirtualClustersBody(WireModel):
    virtual_cluster: list[GroupName]


class PasswordBody(WireModel, kw_only=True):
    old_password: str | UnsetType = UNSET
    new_password: Password


class EmailBody(WireModel):
    email: Email


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


_NAMES = {"type": "array", "items": {"type": "string"}}
_ACLS = {
    "type": "object",
    "properties": {"admin": {"type": "boolean"}, "virtualClusters": _NAMES, "storageConfigs": _NAMES},
}
# Any object; only what members of the group may use has a type.
GroupExtension = Annotated[dict[str, Any], Meta(extra_json_schema={"properties": {"acls": _ACLS}})]


class Group(WireModel):
    groupname: str
    description: str
    external_name: str
    extension: GroupExtension


def check_group_extension(extension: Extension) -> Extension:
    """Check the types in `acls`: permissions are read from it on every request."""
    if "acls" not in extension:
        return extension
    acls = extension["acls"]
    if not isinstance(acls, dict):
        raise InvalidParameters('"extension.acls" must be an object')
    if not isinstance(acls.get("admin", False), bool):
        raise InvalidParameters('"extension.acls.admin" must be a boolean')
    for key in ("virtualClusters", "storageConfigs"):
        value = acls.get(key, [])
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise InvalidParameters(f'"extension.acls.{key}" must be an array of strings')
    return extension


def _group_extension(value: Any, field: Field) -> Extension:
    return check_group_extension(body_decoder.mapping(value, field))


NewGroupExtension = Annotated[dict[str, Any], Meta(extra={"read": _group_extension})]


class GroupExtensionBody(WireModel):
    extension: NewGroupExtension


class NewGroup(WireModel):
    groupname: GroupName
    description: str | UnsetType = UNSET
    external_name: str | UnsetType = UNSET
    extension: NewGroupExtension | UnsetType = UNSET


class GroupChange(WireModel, kw_only=True):
    patch: bool | UnsetType = UNSET
    data: NewGroup

    @staticmethod
    def is_required(path: str, read: Mapping[str, Any]) -> bool:
        return path.startswith("data.") and not read.get("patch")


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


def _unless_code(value: Any, field: Field) -> str:
    return "" if "code" in field.read else body_decoder.text(value, field)


class BrowserSignIn(msgspec.Struct):
    code: str | UnsetType = UNSET
    # Not looked at with a code.
    username: Annotated[str, Meta(extra={"read": _unless_code})] | UnsetType = UNSET
    password: Annotated[str, Meta(extra={"read": _unless_code})] | UnsetType = UNSET


class BrowserSession(WireModel):
    user: str
    admin: bool
    # The half of the session's token that is not in the cookie; sent as `X-PAI-Session-Proof`.
    proof: str


class SignInLink(WireModel):
    url: str
