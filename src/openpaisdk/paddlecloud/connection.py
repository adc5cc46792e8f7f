"""Connection to a datacenter: by its certificate, by a password, or to a cluster that ``pai`` uses.

Tokens are kept in ``~/.paddle/tokens.json`` for each user and address. PaddleCloud's own ``token_cache``
is one token for all datacenters, so it is neither read nor written.
"""

from __future__ import annotations

import os

from openpaisdk.client.transport import TOKEN_REJECTED, Endpoint, Transport
from openpaisdk.paddlecloud.datacenters import DatacenterConfig, paddle_folder
from openpaisdk.paddlecloud.paddlecloud_client import PaddleCloudClient
from paiprotocol.errors import ConfigError, ConnectionFailed, PaiError, Unauthorized, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.client.transport import Renew
    from openpaisdk.paddlecloud.datacenters import Datacenter

SCHEME = "Token"
TOKENS_FILE = "tokens.json"


def open_datacenter(name: str = "", notify: Callable[[str], None] | None = None) -> PaddleCloudClient:
    """A client of the datacenter of this name, or of the one that the configuration selects.

    Without any configuration it is the cluster that ``pai`` uses: on a fresh machine the embedded one.
    """
    config = DatacenterConfig.load()
    datacenter = config.select(name)
    if datacenter is None:
        return _open_pai_cluster(config, name, notify)
    return _connect(datacenter, notify)


def _connect(datacenter: Datacenter, notify: Callable[[str], None] | None) -> PaddleCloudClient:
    endpoint = _endpoint(datacenter)
    renew: Renew | None = None
    if endpoint.certificate:
        _check_user(datacenter)
    else:
        if not datacenter.username or not datacenter.password:
            raise ConfigError(
                f"The datacenter {datacenter.name} has neither a certificate nor a user name and a password.",
                hint="Add usercert and userkey, or username and password, to ~/.paddle/config.",
            )
        tokens = _TokenCache(datacenter)

        def renew(reason: str, failed: Endpoint) -> Endpoint | None:
            if reason != TOKEN_REJECTED:
                return None
            if (stored := tokens.read()) and stored != failed.token:
                endpoint.token = stored  # another thread or command has got a new one
            else:
                endpoint.token = _log_in(datacenter)
                tokens.write(endpoint.token)
            return endpoint

        endpoint.token = tokens.read()
        if not endpoint.token:
            renew(TOKEN_REJECTED, endpoint)
    transport = Transport(datacenter.name, endpoint, renew)
    transport.on_slow_response = notify
    return PaddleCloudClient(datacenter.name, transport)


def _endpoint(datacenter: Datacenter) -> Endpoint:
    try:
        endpoint = Endpoint(
            datacenter.uri,
            datacenter.username,
            rest_path="",
            ca_file=datacenter.cacert,
            certificate=datacenter.certificate,
            scheme=SCHEME,
        )
    except UsageError as e:
        raise ConfigError(
            f"The endpoint of the datacenter {datacenter.name} cannot be used: {e.message}",
            hint="Correct it in ~/.paddle/config.",
        ) from None
    if not endpoint.address.is_secure:
        if endpoint.certificate and not datacenter.password:
            raise ConfigError(
                f"The datacenter {datacenter.name} has a certificate, but its endpoint is plain HTTP.",
                hint="Write https:// in its endpoint, in ~/.paddle/config.",
            )
        endpoint.certificate = None
    return endpoint


def _check_user(datacenter: Datacenter) -> None:
    """The datacenter knows the user by the certificate: paths in the home of another would be refused."""
    from openpaisdk.paddlecloud.certificate_file import CertificateFile

    user = CertificateFile(datacenter.usercert).user
    if user is not None and datacenter.username not in ("", user):
        raise ConfigError(
            f"The certificate {datacenter.usercert} is that of {user}, but username of the datacenter "
            f"{datacenter.name} is {datacenter.username}.",
            hint="Correct username or usercert in ~/.paddle/config.",
        )


def _log_in(datacenter: Datacenter) -> str:
    """Exchange the password for a token."""
    client = PaddleCloudClient(datacenter.name, Transport(datacenter.name, _endpoint(datacenter)))
    try:
        token = client.log_in(datacenter.username, datacenter.password)
    except ConnectionFailed:
        raise
    except PaiError as e:
        if e.status not in (400, 401, 403):
            raise
        raise Unauthorized(
            f"The datacenter {datacenter.name} does not accept the password of {datacenter.username}.",
            hint="Correct username or password in ~/.paddle/config.",
        ) from None
    finally:
        client.transport.close()
    return token


def _open_pai_cluster(
    config: DatacenterConfig, name: str, notify: Callable[[str], None] | None
) -> PaddleCloudClient:
    from openpaisdk.config.clusters import ClusterRegistry
    from openpaisdk.connect import open_cluster

    registry = ClusterRegistry.load()
    try:
        entry = registry.resolve(name)
    except UsageError:
        if name:
            raise config.unknown(name) from None
        raise
    cluster = open_cluster(name, registry=registry, notify=notify)
    renew = cluster.transport.renew
    transport = Transport(
        cluster.alias,
        cluster.transport.endpoint.at_root(SCHEME),
        renew and (lambda reason, failed: (new := renew(reason, failed)) and new.at_root(SCHEME)),
    )
    transport.on_slow_response = notify
    return PaddleCloudClient(
        cluster.alias, transport, is_configured=False, shares_machine=entry.shares_machine
    )


class _TokenCache:
    """The stored token of one user at one address, got with one password.

    With another password, a right one or a wrong one, the datacenter is asked again.
    """

    def __init__(self, datacenter: Datacenter):
        self._path = os.path.join(paddle_folder(), TOKENS_FILE)
        self._login = f"{datacenter.username}@{datacenter.uri}"
        # The file is as private as the configuration, which has the password itself.
        digest = _digest(f"{self._login}\0{datacenter.password}")
        self._key = f"{self._login} {digest}"

    def read(self) -> str:
        token = self._read_all().get(self._key)
        return token if isinstance(token, str) and token.isprintable() else ""

    def write(self, token: str) -> None:
        import json

        from openpaisdk.config.yaml_files import FileLock, replace_file

        with FileLock(self._path):
            others = {key: value for key, value in self._read_all().items() if not self._is_same_login(key)}
            replace_file(self._path, json.dumps({**others, self._key: token}).encode())

    def _is_same_login(self, key: str) -> bool:
        """Whether a key is of this user at this address, with this or an earlier password."""
        return key == self._login or key.startswith(f"{self._login} ")

    def _read_all(self) -> dict[str, object]:
        import json

        try:
            with open(self._path, "rb") as f:
                value = json.loads(f.read())
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}


def _digest(text: str) -> str:
    try:
        # What hashlib has, without the import of OpenSSL, which takes longer than the rest of a command.
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    return blake2b(text.encode(), digest_size=8).hexdigest()
