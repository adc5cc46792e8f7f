"""Who one is: info, logging in, tokens, users, groups."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paicluster.api.description.operation import Operation, Said, Text, Wire, json_or_form


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


class Tokens(Wire):
    tokens: list[str]


class ApplicationToken(Wire):
    token: str
    application: Literal[True]


class CheckedToken(Wire):
    username: str
    admin: bool
    application: bool
    job_specific: bool
    jti: str
    iat: int
    exp: int | UnsetType = UNSET


OPERATIONS: dict[str, Operation] = {
    "v2.authn.banner": Operation("That this is version 2", "api", {200: Text()}, token=False),
    "v2.authn.info": Operation("What this cluster is", "api", {200: Info}, token=False),
    "v2.authn.authn_info": Operation("How to log in", "authn", {200: AuthnInfo}, token=False),
    "v2.authn.login": Operation("Log in", "authn", {200: LoggedIn}, body=json_or_form(Login), token=False),
    "v2.authn.logout": Operation("Log out: the token ends", "authn", {200: Said}, (403,)),
    "v2.authn.list_tokens": Operation("One's tokens", "token", {200: Tokens}, (403,)),
    "v2.authn.application_token": Operation(
        "A token for a program", "token", {200: ApplicationToken}, (403,)
    ),
    "v2.authn.check_token": Operation("Whether a token holds", "token", {200: CheckedToken}),
    "v2.authn.revoke_token": Operation("End a token", "token", {200: Said}, (403,)),
}
