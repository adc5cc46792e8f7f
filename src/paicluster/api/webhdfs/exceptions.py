"""Errors in Hadoop's format: a RemoteException with the name of a Java class."""

from __future__ import annotations

from starlette.responses import Response

from paicluster.api.wire.responses import json_response
from paicluster.files import errors
from paiprotocol.errors import Forbidden, InvalidParameters, NotFound, PaiError, Unauthorized, Unavailable

_ILLEGAL = ("java.lang.IllegalArgumentException", 400)
_IO = ("java.io.IOException", 403)
_ACCESS = ("org.apache.hadoop.security.AccessControlException", 403)

_BY_CODE = {
    errors.NO_FILE: ("java.io.FileNotFoundException", 404),
    errors.NOT_ALLOWED: _ACCESS,
    errors.EXISTS: ("org.apache.hadoop.fs.FileAlreadyExistsException", 403),
    errors.NOT_EMPTY: ("org.apache.hadoop.fs.PathIsNotEmptyDirectoryException", 403),
    errors.NOT_A_FOLDER: ("org.apache.hadoop.fs.ParentNotDirectoryException", 403),
    errors.IS_A_FOLDER: ("java.io.FileNotFoundException", 404),
    errors.BAD_PATH: ("org.apache.hadoop.fs.InvalidPathException", 400),
    errors.FULL: ("org.apache.hadoop.util.DiskChecker$DiskOutOfSpaceException", 403),
    errors.QUOTA_EXCEEDED: ("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", 403),
    errors.INCOMPLETE: _IO,
    errors.UNSUPPORTED: ("org.apache.hadoop.HadoopIllegalArgumentException", 400),
    errors.FAILED: _IO,
}
_BY_KIND: tuple[tuple[type[PaiError], tuple[str, int]], ...] = (
    (Unauthorized, ("java.lang.SecurityException", 401)),
    (Forbidden, _ACCESS),
    (NotFound, ("java.io.FileNotFoundException", 404)),
    (InvalidParameters, _ILLEGAL),
    # Hadoop's clients retry by themselves.
    (Unavailable, ("org.apache.hadoop.ipc.RetriableException", 503)),
)


class UnsupportedOperation(InvalidParameters):
    """WebHDFS operation that this storage does not support."""


class JavaException(PaiError):
    """Error that must appear as a specific Java exception."""

    def __init__(self, java_class: str, status: int, message: str):
        super().__init__(message, status=status)
        self.java_class = java_class


def remote_exception(error: PaiError) -> Response:
    java_class, status = _java_class(error)
    message = f"{error.message} {error.hint}" if error.hint else error.message
    if error.code == errors.NOT_A_FOLDER:
        message = f"{errors.path_of_not_a_folder(error)} (is not a directory)"  # HDFS's message
    return json_response(
        {
            "RemoteException": {
                # For an inner class, the name of the inner class.
                "exception": java_class.rpartition(".")[2].rpartition("$")[2],
                "javaClassName": java_class,
                "message": message,
            }
        },
        status,
    )


def _java_class(error: PaiError) -> tuple[str, int]:
    if isinstance(error, JavaException):
        return error.java_class, error.status
    if isinstance(error, UnsupportedOperation):
        return "java.lang.UnsupportedOperationException", 400
    known = _BY_CODE.get(error.code)
    if known is not None:
        return known
    for kind, java_class in _BY_KIND:
        if isinstance(error, kind):
            return java_class
    return "java.lang.RuntimeException", 500 if error.status < 500 else error.status
