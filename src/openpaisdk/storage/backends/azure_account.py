"""Account of Azure Blob: from an address, the variables of Azure's tools, or ``~/.azure/config``."""

from __future__ import annotations

import os

from paiprotocol.errors import ConfigError, Unauthorized

DEFAULT_DOMAIN = "core.windows.net"
AZURE_DOMAINS = (DEFAULT_DOMAIN, "core.chinacloudapi.cn", "core.usgovcloudapi.net")
SET_ACCOUNT = (
    "Set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY (or AZURE_STORAGE_SAS_TOKEN), or "
    "AZURE_STORAGE_CONNECTION_STRING."
)


class AzureAccount:
    """How an account is reached. Without a key and a token, azure-identity provides the credential."""

    __slots__ = ("connection_string", "endpoint_url", "key", "name", "sas_token")

    def __init__(
        self,
        name: str = "",
        *,
        key: str = "",
        sas_token: str = "",
        endpoint_url: str = "",
        connection_string: str = "",
    ):
        self.name = name
        self.key = key
        self.sas_token = sas_token.removeprefix("?")
        self.endpoint_url = endpoint_url.rstrip("/")
        self.connection_string = connection_string

    @property
    def has_secret(self) -> bool:
        return bool(self.key or self.sas_token or self.connection_string)

    @property
    def endpoint(self) -> str:
        """Address of the account, also where a connection string names it."""
        address = self.endpoint_url or _value_in(self.connection_string, "BlobEndpoint").rstrip("/")
        return address or f"https://{self.name}.blob.{DEFAULT_DOMAIN}"

    def has_expired(self) -> bool:
        """Whether the token says of itself that it is no longer valid: a rejection may not say why."""
        from datetime import UTC, datetime
        from urllib.parse import parse_qs

        token = self.sas_token or _value_in(self.connection_string, "SharedAccessSignature")
        (ends,) = parse_qs(token).get("se", [""])[:1]
        try:
            at = datetime.fromisoformat(ends)
        except ValueError:
            return False
        return at.replace(tzinfo=at.tzinfo or UTC) < datetime.now(UTC)

    def as_connection_string(self) -> str:
        """What Azure's libraries connect with; empty if azure-identity has to provide the credential."""
        if self.connection_string or not self.has_secret:
            return self.connection_string
        secret = f"AccountKey={self.key}" if self.key else f"SharedAccessSignature={self.sas_token}"
        return f"BlobEndpoint={self.endpoint};AccountName={self.name};{secret}"


def split_host(host: str) -> tuple[str, AzureAccount]:
    """Container and account of the host of an address: CONTAINER, or CONTAINER@ACCOUNT[.blob.DOMAIN]."""
    container, _, where = host.partition("@")
    name, _, domain = where.partition(".")
    service, _, domain = domain.partition(".")
    endpoint = f"https://{name}.blob.{domain}" if service in ("blob", "dfs") and domain else ""
    return container, AzureAccount(name, endpoint_url=endpoint)


def find_account(addressed: AzureAccount, url: str) -> AzureAccount:
    """The account of an address, with the credentials that this machine has for it."""
    for account in (_from_environment(), _from_file()):
        if addressed.name and account.name not in ("", addressed.name):
            continue  # credentials of another account
        if account.name or account.has_secret or account.endpoint_url:
            name = addressed.name or account.name
            if name or account.connection_string:
                if not (account.key or account.connection_string or account.endpoint_url):
                    _check_is_azure(addressed, url)
                return AzureAccount(
                    name,
                    key=account.key,
                    sas_token=account.sas_token,
                    endpoint_url=account.endpoint_url or addressed.endpoint_url,
                    connection_string=account.connection_string,
                )
    if addressed.name:
        _check_is_azure(addressed, url)
        return addressed
    raise Unauthorized(f"There is no account for {url}.", hint=SET_ACCOUNT)


def _check_is_azure(addressed: AzureAccount, url: str) -> None:
    """A token would be sent as it is to whatever server the address names; a key only signs."""
    host = addressed.endpoint_url.partition("://")[2].partition("/")[0].partition(":")[0]
    if host and not host.endswith(tuple(f".{domain}" for domain in AZURE_DOMAINS)):
        raise ConfigError(
            f"{url} is at {host}, which is not Azure: your credentials are not sent there.",
            hint="If it is yours, set AZURE_STORAGE_SERVICE_ENDPOINT to its address.",
        )


def _from_environment() -> AzureAccount:
    def value(*names: str) -> str:
        return next((os.environ[name] for name in names if os.environ.get(name)), "")

    connection_string = value("AZURE_STORAGE_CONNECTION_STRING")
    return AzureAccount(
        _value_in(connection_string, "AccountName")
        or value("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"),
        key=value("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"),
        sas_token=value("AZURE_STORAGE_SAS_TOKEN"),
        endpoint_url=value("AZURE_STORAGE_SERVICE_ENDPOINT"),
        connection_string=connection_string,
    )


def _from_file() -> AzureAccount:
    """The section ``storage`` of the configuration of Azure's command line."""
    from configparser import ConfigParser, Error

    folder = os.environ.get("AZURE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".azure")
    path = os.path.join(folder, "config")
    parser = ConfigParser(interpolation=None)
    try:
        parser.read(path, encoding="utf-8")
    except (Error, UnicodeDecodeError) as e:
        raise ConfigError(f"{path} cannot be read: {str(e).splitlines()[0]}.") from None
    if not parser.has_section("storage"):
        return AzureAccount()
    section = parser["storage"]
    connection_string = section.get("connection_string", "")
    return AzureAccount(
        _value_in(connection_string, "AccountName") or section.get("account", ""),
        key=section.get("key", ""),
        sas_token=section.get("sas_token", ""),
        connection_string=connection_string,
    )


def _value_in(connection_string: str, wanted: str) -> str:
    pairs = (pair.partition("=") for pair in connection_string.split(";"))
    return next((value for name, _, value in pairs if name.strip().lower() == wanted.lower()), "")


__all__ = ["SET_ACCOUNT", "AzureAccount", "find_account", "split_host"]
