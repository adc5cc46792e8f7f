"""WebHDFS: the requests and responses of its operations, for tasks and for the SDK's storage backend."""

import json

from pairuntime.transport.http1 import query, quote

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any

    from pairuntime.transport.http1 import Body, Response

BASE = "/webhdfs/v1"
# Of a NameNode, where an address names none.
WEB_PORT = 50070
REDIRECT_STATUSES = (300, 301, 302, 303, 307, 308)
_MAX_REDIRECTS = 5
# Value of `data`: our own server then takes or sends the content at once. HDFS ignores it and redirects.
_IN_ONE_STEP = "true"


class WebHdfsClient:
    """Operations of one storage, with responses as they come. A subclass sends requests and makes errors.

    HDFS transfers content in two steps: the NameNode tells the address of a DataNode, which has or takes it.
    """

    # -- what a subclass provides ------------------------------------------------------------------

    def send(
        self, method: "str", target: "str", body: "bytes | Body | None", *, streams: "bool"
    ) -> "Response":
        """Send a request to the storage. ``streams``: the response is read while others are sent."""
        raise NotImplementedError

    def follow(self, method: "str", location: "str", body: "bytes | Body | None") -> "Response":
        """Send a request to the address of a redirect, which may be another host: it gets no token."""
        raise NotImplementedError

    def user_parameter(self) -> "str":
        """User in whose name a storage acts that knows no tokens; else empty."""
        raise NotImplementedError

    def failure(self, status: "int", text: "bytes", path: "str") -> "Exception":
        """Error for a response with an error status."""
        raise NotImplementedError

    def unexpected_response(self) -> "Exception":
        """Error for a response that is not WebHDFS."""
        raise NotImplementedError

    def redirect_loop(self) -> "Exception":
        """Error for redirects that do not end."""
        return self.unexpected_response()

    def read_text(self, response: "Response") -> "bytes":
        """Text of a response that is not the content of a file."""
        return response.read()

    # -- requests ----------------------------------------------------------------------------------

    def quote_path(self, path: "str") -> "str":
        return "/".join(quote(part) for part in path.split("/"))

    def request(
        self,
        method: "str",
        path: "str",
        op: "str",
        values: "dict[str, object]",
        body: "bytes | Body | None" = None,
        streams: "bool" = False,
    ) -> "Response":
        parameters = dict(values, op=op)
        parameters["user.name"] = self.user_parameter()
        response = self.send(method, self.quote_path(path) + query(parameters), body, streams=streams)
        self._check(response, path)
        return response

    def call(self, method: "str", path: "str", op: "str", **values: "object") -> "bytes":
        """Text of the response to an operation that transfers no content."""
        response = self.request(method, path, op, values, None if method == "GET" else b"")
        text = self.read_text(response)
        self._check_no_redirect(response)
        return text

    def _json(self, method: "str", path: "str", op: "str", **values: "object") -> "dict[str, Any]":
        return self._parse(self.call(method, path, op, **values))

    def write(
        self,
        method: "str",
        path: "str",
        op: "str",
        body: "bytes | Body",
        *,
        in_one_step: "bool" = False,
        **values: "object",
    ) -> "None":
        if in_one_step:
            response = self.request(method, path, op, dict(values, data=_IN_ONE_STEP), body)
        else:
            location = self._location(self.request(method, path, op, values, b""))
            response = self.follow(method, location, body)
            self._check(response, path)
        self.read_text(response)
        self._check_no_redirect(response)

    def open(self, path: "str", op: "str" = "OPEN", **values: "object") -> "Response":
        """Response with the content of a file, from wherever it is."""
        response = self.request("GET", path, op, dict(values, data=_IN_ONE_STEP), streams=op == "OPEN")
        # Some storages send the address as JSON in place of a redirect.
        if op == "OPEN" and "json" in response.headers.get("content-type", ""):
            return self.fetch(self._location(response), path)
        return self._follow_redirects(response, path)

    def fetch(self, url: "str", path: "str") -> "Response":
        """Response to a GET of the address at which the content of a file is."""
        response = self.follow("GET", url, None)
        self._check(response, path)
        return self._follow_redirects(response, path)

    def _follow_redirects(self, response: "Response", path: "str") -> "Response":
        for _ in range(_MAX_REDIRECTS):
            if response.status not in REDIRECT_STATUSES:
                return response
            response = self.follow("GET", self._location(response), None)
            self._check(response, path)
        raise self.redirect_loop()

    def _check(self, response: "Response", path: "str") -> "None":
        if response.status >= 400:
            raise self.failure(response.status, self.read_text(response), path)

    def _check_no_redirect(self, response: "Response") -> "None":
        """Raise for a redirect by a proxy: nothing was written then."""
        if response.status >= 300:
            raise self.unexpected_response()

    def _location(self, response: "Response") -> "str":
        text = self.read_text(response)
        location = response.headers.get("location", "")
        if not location and text:
            location = str(self._parse(text).get("Location") or "")
        if "://" not in location:
            raise self.unexpected_response()
        return location

    def _parse(self, text: "bytes") -> "dict[str, Any]":
        try:
            response = json.loads(text.decode())
        except ValueError:
            raise self.unexpected_response() from None
        if not isinstance(response, dict):
            raise self.unexpected_response()
        return response

    def _part(self, response: "dict[str, Any]", *names: "str") -> "dict[str, Any]":
        for name in names:
            response = response.get(name)  # type: ignore[assignment]
            if not isinstance(response, dict):
                raise self.unexpected_response()
        return response

    # -- operations --------------------------------------------------------------------------------

    def file_status(self, path: "str") -> "dict[str, Any]":
        return self._part(self._json("GET", path, "GETFILESTATUS"), "FileStatus")

    def list_status(self, path: "str") -> "list[dict[str, Any]]":
        """Entries of a folder; a file is listed as itself, with an empty name."""
        return self._entries(self._json("GET", path, "LISTSTATUS"))

    def list_batch(self, path: "str", after: "str" = "") -> "tuple[list[dict[str, Any]], int]":
        """Entries of a folder after a name, as many as the storage sends at once, and how many are left."""
        response = self._json("GET", path, "LISTSTATUS_BATCH", startAfter=after)
        listing = self._part(response, "DirectoryListing")
        remaining = listing.get("remainingEntries")
        if not isinstance(remaining, int):
            raise self.unexpected_response()
        return self._entries(self._part(listing, "partialListing")), remaining

    def _entries(self, response: "dict[str, Any]") -> "list[dict[str, Any]]":
        entries = self._part(response, "FileStatuses").get("FileStatus")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self.unexpected_response()
        return entries

    def content_summary(self, path: "str") -> "dict[str, Any]":
        """Numbers of files, folders and bytes of a file or folder, and its quotas."""
        return self._part(self._json("GET", path, "GETCONTENTSUMMARY"), "ContentSummary")

    def server_defaults(self) -> "dict[str, Any]":
        return self._part(self._json("GET", "/", "GETSERVERDEFAULTS"), "FsServerDefaults")

    def file_checksum(self, path: "str") -> "dict[str, Any]":
        response = self.open(path, "GETFILECHECKSUM")
        return self._part(self._parse(self.read_text(response)), "FileChecksum")

    def make_folder(self, path: "str") -> "None":
        self._json("PUT", path, "MKDIRS")

    def delete(self, path: "str", recursive: "bool" = False) -> "bool":
        """Delete a file or folder; returns whether there was one."""
        response = self._json("DELETE", path, "DELETE", recursive="true" if recursive else "false")
        return response.get("boolean") is True

    def rename(self, path: "str", target: "str", options: "str" = "") -> "bool":
        """Rename; returns whether that was done. With ``options`` a failure raises: there is no result."""
        text = self.call("PUT", path, "RENAME", destination=target, renameoptions=options)
        return self._parse(text).get("boolean") is not False if text else bool(options)

    def set_time(self, path: "str", mtime_ns: "int") -> "None":
        # No times before 1970.
        modified = max(0, mtime_ns // 10**6)
        self.call("PUT", path, "SETTIMES", modificationtime=modified)


def remote_exception(text: "bytes") -> "tuple[str, str, str] | None":
    """Name, message and hint of an error response of WebHDFS; None if it is another one."""
    try:
        remote = json.loads(text.decode())["RemoteException"]
        return str(remote["exception"]), str(remote.get("message") or ""), str(remote.get("hint") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
