"""Small WebHDFS client for tasks, with the standard library alone: upload, download, list, rename, delete."""

import io
import json
import os
import time
from urllib.parse import quote, urlencode, urlsplit

from pairuntime.task.http_connection import Connection, HttpError

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    import http.client
    import ssl
    from typing import IO, Any, BinaryIO

    AnyConnection = Connection | http.client.HTTPConnection

# Certificates by which the cluster's server is verified, next to the runtime's archive.
CA_FILE = "authority.pem"
# X509_V_FLAG_PARTIAL_CHAIN: a chain may end at any of them. Named in ssl since Python 3.10.
_PARTIAL_CHAIN = 0x80000
_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 120.0
_RETRY_DELAYS_S = (0.5, 1, 2, 4, 8, 16, 30, 60, 60, 60)


def is_utf8(name: "str") -> "bool":
    """Whether a file name can be sent: other bytes come as surrogates."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class WebHdfsError(Exception):
    """Error response of the storage, with its message for the user."""

    def __init__(self, message: "str", status: "int" = 0, kind: "str" = "", hint: "str" = ""):
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.hint = hint


class Storage:
    """``address`` is the URL before the path: ``http://host:port/webhdfs/v1``."""

    def __init__(self, address: "str", token: "str" = "", user: "str" = "") -> "None":
        self._address = address.rstrip("/")
        self._token = token
        self._user = user
        self._connections = {}  # type: dict[str, AnyConnection]

    def with_own_connections(self) -> "Storage":
        """The same storage for another thread."""
        return Storage(self._address, self._token, self._user)

    # -- operations --------------------------------------------------------------------------------

    def status(self, path: "str") -> "dict[str, Any] | None":
        """FileStatus of a file or folder; None if it does not exist."""
        try:
            found = self._call("GET", path, op="GETFILESTATUS")
        except WebHdfsError as error:
            if error.status == 404:
                return None
            raise
        return dict(found["FileStatus"])

    def entries(self, path: "str") -> "list[dict[str, Any]]":
        return list(self._call("GET", path, op="LISTSTATUS")["FileStatuses"]["FileStatus"])

    def make_folder(self, path: "str") -> "None":
        self._call("PUT", path, op="MKDIRS")

    def delete(self, path: "str", recursive: "bool" = False) -> "bool":
        result = self._call("DELETE", path, op="DELETE", recursive="true" if recursive else "false")
        return bool(result.get("boolean"))

    def rename(self, path: "str", target: "str") -> "bool":
        return bool(self._call("PUT", path, op="RENAME", destination=target).get("boolean"))

    def replace(self, path: "str", target: "str") -> "None":
        """Rename to a path at which a file may be. A failure is an error."""
        self._call("PUT", path, op="RENAME", destination=target, renameoptions="OVERWRITE")

    def put(self, source: "str", path: "str", overwrite: "bool" = True) -> "int":
        """Upload a whole file; returns its size. A file that changes meanwhile is an error."""
        with open(source, "rb") as f:
            return self.put_file(f, path, overwrite)

    def set_time(self, path: "str", mtime_ns: "int") -> "None":
        self._call("PUT", path, op="SETTIMES", modificationtime=str(max(0, mtime_ns // 10**6)))

    def put_file(self, source: "IO[bytes]", path: "str", overwrite: "bool" = True) -> "int":
        """Upload a whole open file; returns its size."""
        size = os.fstat(source.fileno()).st_size

        def send() -> "int":
            location = self._data_location(
                "PUT", path, op="CREATE", overwrite="true" if overwrite else "false"
            )
            source.seek(0)
            sent = self._send(location, source, size)
            if sent != size:
                raise WebHdfsError("%s changed while it was read." % source.name)
            return sent

        return int(self._with_retries(send))

    def put_bytes(self, content: "bytes", path: "str", overwrite: "bool" = True) -> "None":
        """Upload a value that is in memory. ``overwrite``: else a file that exists is an error."""
        flag = "true" if overwrite else "false"

        def send() -> "None":
            if self._token:
                # Our own server takes the bytes at once; HDFS redirects to the node that stores them.
                location = self._url(path, op="CREATE", data="true", overwrite=flag)
            else:
                location = self._data_location("PUT", path, op="CREATE", overwrite=flag)
            self._send(location, io.BytesIO(content), len(content))

        self._with_retries(send)

    def get(self, path: "str", into: "BinaryIO") -> "int":
        """Download a file; returns its size. Not retried, so nothing is written twice."""
        # Our own server then sends the bytes at once; HDFS ignores `data` and redirects.
        response = self._open(self._url(path, op="OPEN", data="true"))
        size = 0
        expected = response.getheader("Content-Length")
        while True:
            data = response.read(_CHUNK_BYTES)
            if not data:
                break
            into.write(data)
            size += len(data)
        if expected is not None and int(expected) != size:
            raise WebHdfsError("%s is incomplete: received %d bytes of %s." % (path, size, expected))
        return size

    def read_range(self, path: "str", offset: "int" = 0, length: "int" = 0) -> "bytes":
        """Bytes of a file from an offset; without a length, to its end."""
        query = {"length": str(length)} if length else {}

        def read() -> "bytes":
            url = self._url(path, op="OPEN", data="true", offset=str(offset), **query)
            return bytes(self._open(url).read())

        return bytes(self._with_retries(read))

    def read_if_exists(self, path: "str") -> "bytes | None":
        try:
            return self.read_range(path)
        except WebHdfsError as error:
            if error.status == 404:
                return None
            raise

    def get_json(self, path: "str") -> "Any":
        """JSON response to a GET of a path below the address, with the token."""

        def call() -> "Any":
            response = self._request("GET", self._address + path)
            text = response.read()
            self._check(response, text)
            return json.loads(text.decode())

        return self._with_retries(call)

    def download(self, url: "str") -> "bytes":
        """Content behind a link, which the server gave."""
        return bytes(self._with_retries(lambda: self._open(url).read()))

    # -- HTTP --------------------------------------------------------------------------------------

    def _url(self, path: "str", **query: "str") -> "str":
        if self._user and not self._token:
            query["user.name"] = self._user
        if not is_utf8(path):
            raise WebHdfsError("%r is not UTF-8, as the names of a storage are." % path)
        return "%s%s?%s" % (self._address, quote("/" + path.lstrip("/")), urlencode(query))

    def _headers(self, url: "str") -> "dict[str, str]":
        # The URL of a redirect carries its own ticket; the token is for the storage alone.
        if self._token and url.startswith(self._address):
            return {"Authorization": "Bearer " + self._token}
        return {}

    def _call(self, method: "str", path: "str", **query: "str") -> "dict[str, Any]":
        def call() -> "dict[str, Any]":
            response = self._request(method, self._url(path, **query))
            text = response.read()
            self._check(response, text)
            return dict(json.loads(text.decode() or "{}"))

        return dict(self._with_retries(call))

    def _data_location(self, method: "str", path: "str", **query: "str") -> "str":
        """URL for the data: the first of the two steps of a WebHDFS upload."""
        response = self._request(method, self._url(path, noredirect="true", **query))
        text = response.read()
        if response.status == 307:
            return str(response.getheader("Location"))
        self._check(response, text)
        return str(json.loads(text.decode())["Location"])

    def _send(self, url: "str", source: "IO[bytes]", size: "int") -> "int":
        connection, target = self._connection(url)
        connection.putrequest("PUT", target)
        headers = dict(self._headers(url))
        headers["Content-Type"] = "application/octet-stream"
        headers["Content-Length"] = str(size)
        for name, value in headers.items():
            connection.putheader(name, value)
        sent = 0
        try:
            connection.endheaders()
            while sent < size:
                data = source.read(min(_CHUNK_BYTES, size - sent))
                if not data:
                    break
                connection.send(data)
                sent += len(data)
            if sent < size:
                self._drop(url)
                return sent
            response = connection.getresponse()
            text = response.read()
        except BaseException:
            self._drop(url)
            raise
        self._check(response, text)
        return sent

    def _open(self, url: "str") -> "Any":
        for _ in range(5):
            response = self._request("GET", url)
            if response.status not in (301, 302, 307, 308):
                if response.status != 200:
                    self._check(response, response.read())
                return response
            response.read()
            url = str(response.getheader("Location"))
        raise WebHdfsError("The storage redirects in a loop.")

    def _request(self, method: "str", url: "str") -> "Any":
        connection, target = self._connection(url)
        try:
            connection.request(method, target, headers=self._headers(url))
            return connection.getresponse()
        except Exception:
            self._drop(url)
            raise

    def _connection(self, url: "str") -> "tuple[AnyConnection, str]":
        parts = urlsplit(url)
        key = "%s://%s" % (parts.scheme, parts.netloc)
        connection = self._connections.get(key)
        if connection is None:
            if parts.scheme == "https":
                import http.client

                connection = http.client.HTTPSConnection(parts.netloc, timeout=_TIMEOUT_S, context=_trust())
            else:
                connection = Connection(parts.netloc, _TIMEOUT_S)
            self._connections[key] = connection
        return connection, parts.path + ("?" + parts.query if parts.query else "")

    def _drop(self, url: "str") -> "None":
        parts = urlsplit(url)
        connection = self._connections.pop("%s://%s" % (parts.scheme, parts.netloc), None)
        if connection is not None:
            connection.close()

    def _check(self, response: "Any", text: "bytes") -> "None":
        if response.status < 400 and response.status != 307:
            return
        message, kind, hint = text.decode("utf-8", "replace").strip()[:300], "", ""
        try:
            body = json.loads(text.decode())
            remote = body.get("RemoteException") or body
            message, kind = str(remote.get("message") or message), str(remote.get("exception") or "")
            hint = str(remote.get("hint") or "")
        except (ValueError, AttributeError):
            pass
        raise WebHdfsError(
            message or "The storage responded with status %d." % response.status, response.status, kind, hint
        )

    def _with_retries(self, work: "Any") -> "Any":
        """Retry while the storage is unreachable: the server may be restarting."""
        for delay in _RETRY_DELAYS_S:
            try:
                return work()
            except WebHdfsError as error:
                if error.status not in (429, 500, 502, 503, 504):
                    raise
            except Exception as e:  # noqa: BLE001 - the names are in modules that plain HTTP does not import
                if _is_untrusted(e):
                    # A retry will not help.
                    reason = getattr(e, "verify_message", "") or e
                    raise WebHdfsError("The certificate of %s is not trusted: %s." % (self._address, reason))
                if not _is_connection_error(e):
                    raise
            time.sleep(delay)
        return work()


def _is_untrusted(error: "Exception") -> "bool":
    """Whether a certificate was rejected; Python 3.6 has only CertificateError, for other names."""
    return type(error).__name__ in ("SSLCertVerificationError", "CertificateError")


def _is_connection_error(error: "Exception") -> "bool":
    """Whether the server could not be reached, or its response ended early."""
    kinds = [kind.__module__ + "." + kind.__name__ for kind in type(error).__mro__]
    return isinstance(error, (OSError, HttpError)) or "http.client.HTTPException" in kinds


def _trust() -> "ssl.SSLContext":
    """TLS context that trusts the system's certificates and those of the cluster's server."""
    import ssl

    context = ssl.create_default_context()
    if ".pyz" in __file__:
        path = os.path.join(os.path.dirname(__file__[: __file__.index(".pyz")]), CA_FILE)
        if os.path.exists(path):
            context.load_verify_locations(path)
            context.verify_flags |= _PARTIAL_CHAIN
    return context
