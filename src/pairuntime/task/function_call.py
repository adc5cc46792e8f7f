"""Runs one call of a Python function in a task: ``pairuntime call REQUEST``.

The request names files on the storage: the call, written by the SDK, and the result, which is written here.
Nothing but the standard library is needed: the library that the function was pickled with comes along.
"""

import io
import os
import pickle
import signal
import sys
from types import CoroutineType

from pairuntime.task import saved_state
from pairuntime.task.delayed_call import DelayedSubmission
from pairuntime.task.webhdfs import Storage, WebHdfsError
from pairuntime.transport import call_format
from pairuntime.transport.call_format import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from types import FrameType
    from typing import IO, Any, Callable, NoReturn

FAILED = 1
# The cluster then retries the task (`paiprotocol.jobs.retries`).
CONTINUES_IN_RETRY = 247
_VALUES_FOLDER = os.path.abspath(".pai/values")


class Request:
    """What to call. Paths are on the storage."""

    def __init__(self, raw: "dict[str, Any]") -> "None":
        self._raw = raw
        self.task_index = int(os.environ.get("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX") or 0)
        self.tasks = int(raw.get("tasks", 1))
        self.python = tuple(raw["python"])  # type: tuple[int, ...]
        self.call = str(raw["call"])
        self.library = str(raw.get("library") or "")
        self.packages = str(raw.get("packages") or "")
        self.import_paths = [str(path) for path in raw.get("paths") or []]
        self.address = str(raw.get("address") or "")
        self.user = str(raw.get("user") or "")
        self.tasks_per_node = int(raw.get("tasksPerNode") or 1)
        self.calls = int(raw.get("calls") or 0)
        """Calls that the tasks of the array share; 0 if each task has its own."""
        self.time_limit_s = float(raw.get("timeLimit") or 0)
        self.retries = int(raw.get("retries") or 0)
        attempts = (os.environ.get(name, "0") for name in ("FC_TASK_ATTEMPT_ID", "FC_FRAMEWORK_ATTEMPT_ID"))
        self.is_later_attempt = any(attempt not in ("", "0") for attempt in attempts)
        self.job_folder = folder = str(raw["results"])
        self.has_claims = bool(raw.get("array")) and self.tasks > 1
        """Whether a call is claimed before it runs: one of several may be cancelled."""
        self.results_folder = call_format.results_folder(folder)
        self.call_index = self.task_index if raw.get("array") else 0
        own = "%s/%s-%d" % (folder, raw["role"], self.task_index) if self.tasks > 1 else folder
        self.result = own + "/result.pickle"
        self.checkpoint = own + "/checkpoint.pickle"

    def select(self, index: "int") -> "Request":
        """The request for one of the calls that tasks share."""
        chosen = Request(self._raw)
        folder = str(self._raw["results"])
        chosen.call_index = index
        chosen.result = call_format.shared_result(folder, index)
        chosen.checkpoint = call_format.shared_checkpoint(folder, index)
        return chosen


class _StopRequest(KeyboardInterrupt):
    """Raised in the main thread when the task is asked to stop and the function can continue later.

    A KeyboardInterrupt because event loops of asyncio pass it on from any of their tasks.
    """

    def __init__(self, is_restarted: "bool" = False) -> "None":
        super().__init__()
        self.is_restarted = is_restarted


class _NoArgument(Exception):
    """An argument is the result of another call, which has none."""


class Call:
    """One call. ``previous``: one that ran in this process, so that modules and files are there already.

    ``continues``: there may be a checkpoint. The first attempt has none: one request less.
    ``is_repeated``: another try follows if this one fails, so that its exception is not the result.
    """

    def __init__(
        self,
        request: "Request",
        files: "Storage",
        previous: "Call | None" = None,
        continues: "bool" = False,
        is_repeated: "bool" = False,
    ) -> "None":
        self._request = request
        self._files = files
        self._continues = continues
        self._is_repeated = is_repeated
        self._calls = previous._calls if previous is not None else b""  # type: bytes
        self._is_prepared = previous is not None

    def run(self, on_call: "Callable[[], None] | None" = None) -> "int":
        """Exit status of the call. ``on_call`` is called when all is loaded, right before the function."""
        request = self._request
        here = sys.version_info[:2]
        if here != request.python[:2]:
            message = (
                "The function was pickled by Python %d.%d, and the task has Python %d.%d: "
                % (request.python[:2] + here)
                + "both must be the same."
            )
            sys.stderr.write(message + "\n")
            pickled_by = "%d.%d" % request.python[:2]
            self.write_result(call_format.OTHER_PYTHON, message=message, pickled_by=pickled_by)
            return FAILED
        if not self._is_prepared:
            sys.path[:0] = [os.path.join(os.getcwd(), path) for path in request.import_paths]
            self._load_library()
            self._load_packages()
        try:
            function, arguments, keywords = self._load()
        except _NoArgument as error:
            sys.stderr.write("The function was not called. %s\n" % error)
            self.write_result(call_format.DEPENDENCY_FAILED, message=str(error))
            return FAILED
        except (WebHdfsError, FormatError, OSError):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the import of the user's modules raises
            return self._report(error, "The function or its arguments could not be loaded in the task.")
        if on_call is not None:
            on_call()
        return self._call(function, arguments, keywords)

    # -- the call ------------------------------------------------------------------------------------

    def _load(self) -> "tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]":
        saved = self._checkpoint()
        if saved is not None:
            loaded = self._unpickle(saved)
            if isinstance(loaded, DelayedSubmission):
                return loaded.function, loaded.args, loaded.kwargs
            saved_state.restore(loaded[0])
        else:
            saved_state.restore(None)
        function, arguments = call_format.read_call(self._read_calls, self._request.call_index)
        args, kwargs = self._unpickle(arguments)
        return self._unpickle(function), args, kwargs

    def _read_calls(self, offset: "int", length: "int") -> "bytes":
        """A range of the file of calls; its beginning is kept for the next call."""
        if offset + length <= len(self._calls):
            return self._calls[offset : offset + length]
        data = self._files.read_range(self._request.call, offset, length)
        if offset == 0:
            self._calls = data
        return data

    def _call(self, function: "Any", args: "tuple[Any, ...]", kwargs: "dict[str, Any]") -> "int":
        interruption = Interruption(call_format.process_file(self._request.call_index))
        saved_state.forget_registration()
        saved_state.on_registration = interruption.arm
        if _checkpoint_of(function) is not None:
            interruption.arm()
        interruption.arm_on_request()
        try:
            value = function(*args, **kwargs)
            if isinstance(value, CoroutineType):
                value = _run_coroutine(value)
        except _StopRequest as stop:
            return self._continue_later(function, args, kwargs, is_restarted=stop.is_restarted)
        except BaseException as error:  # noqa: BLE001 - everything is reported, and SystemExit too
            return self._report(error)
        finally:
            interruption.disarm()
        try:
            payload = _dumps(value)
        except Exception as error:  # noqa: BLE001 - pickling calls the user's code
            return self._report(error, "The result of the function cannot be pickled.")
        sys.stdout.flush()
        self.write_result(call_format.DONE, payload)
        return 0

    def _continue_later(self, function: "Any", args: "Any", kwargs: "Any", is_restarted: "bool") -> "int":
        """Write a checkpoint. ``is_restarted``: without one the function begins again in the next attempt."""
        checkpoint = None  # type: Any
        try:
            save = _checkpoint_of(function)
            if save is not None:
                checkpoint = save(*args, **kwargs)
            elif saved_state.can_save():
                checkpoint = (saved_state.save(),)
        except Exception as error:  # noqa: BLE001 - the user's code
            return self._report(error, "The checkpoint could not be made.")
        if checkpoint is None and is_restarted:
            sys.stderr.write("The function was interrupted; it begins again in the next attempt.\n")
            return CONTINUES_IN_RETRY
        if checkpoint is None:
            return 128 + signal.SIGTERM
        self._files.put_bytes(_dumps(checkpoint), self._request.checkpoint)
        sys.stderr.write("A checkpoint was written; the function continues in the next attempt.\n")
        return CONTINUES_IN_RETRY

    # -- files ---------------------------------------------------------------------------------------

    def _checkpoint(self) -> "bytes | None":
        return self._files.read_if_exists(self._request.checkpoint) if self._continues else None

    def _load_library(self) -> "None":
        """Make the library importable that the function was pickled with."""
        if not self._request.library:
            return
        try:
            import cloudpickle  # noqa: F401
        except ImportError:
            sys.path.append(self._fetch(self._request.library, "library.zip"))

    def _load_packages(self) -> "None":
        """Make packages importable that were not in the user's current folder. Unpacked: they have data."""
        if not self._request.packages:
            return
        import zipfile

        archive = self._fetch(self._request.packages, "packages.zip")
        folder = archive[: -len(".zip")]
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
        sys.path.insert(0, folder)

    def _fetch(self, path: "str", name: "str") -> "str":
        """Local copy of a file on the storage."""
        os.makedirs(_VALUES_FOLDER, exist_ok=True)
        target = os.path.join(_VALUES_FOLDER, name)
        if not os.path.exists(target):
            with open(target + ".part", "wb") as into:
                self._files.get(path, into)
            os.rename(target + ".part", target)
        return target

    def _unpickle(self, data: "bytes") -> "Any":
        return self._unpickle_file(io.BytesIO(data))

    def _unpickle_file(self, file: "IO[bytes]") -> "Any":
        return _Unpickler(file, self._resolve).load()

    def _resolve(self, kind: "str", path: "str") -> "Any":
        """What a pickled call refers to."""
        if kind == call_format.STORED_VALUE:
            # Calls that share the task share the file.
            with open(self._fetch(path, os.path.basename(path)), "rb") as f:
                return self._unpickle_file(f)
        if kind == call_format.RESULT_OF_CALL:
            data = self._files.read_if_exists(path)
            if data is None:
                raise _NoArgument("The call whose result is an argument left none (%s)." % path)
            fields, payload = call_format.read_result(data)
            if fields["status"] == call_format.CANCELLED:
                raise _NoArgument("The call whose result is an argument was cancelled (%s)." % path)
            if fields["status"] != call_format.DONE:
                reason = ": ".join(str(fields[key]) for key in ("type", "message") if fields.get(key))
                raise _NoArgument("The call whose result is an argument failed (%s): %s" % (path, reason))
            return self._unpickle(bytes(payload))
        raise FormatError("The call refers to an unknown kind of value: %s" % kind)

    # -- the result ----------------------------------------------------------------------------------

    def _report(self, error: "BaseException", what: "str" = "") -> "int":
        """Write an exception as the result, and to the log as Python does."""
        text = _traceback_of(error)
        sys.stdout.flush()
        sys.stderr.write(text + (what + "\n" if what else ""))
        try:
            payload = _dumps(error)
        except Exception:  # noqa: BLE001 - pickling calls the user's code; the text arrives in any case
            payload = b""
        self.write_result(
            call_format.RAISED,
            payload,
            type="%s.%s" % (type(error).__module__, type(error).__qualname__),
            message=_message_of(error),
            traceback=text,
            note=what,
        )
        code = getattr(error, "code", FAILED) if isinstance(error, SystemExit) else FAILED
        return code if isinstance(code, int) and 0 < code < 200 else FAILED

    def write_result(self, status: "str", payload: "bytes" = b"", **fields: "Any") -> "None":
        if status == call_format.RAISED and self._is_repeated:
            return
        parts = call_format.pack_result(status, payload, **fields)
        self._files.put_bytes(b"".join(parts), self._request.result)


class Interruption:
    """SIGTERM as an interruption of the function, which then saves its state.

    The cluster sends it at the time limit, and when another job needs the resources. A client that tests
    checkpoints sends SIGUSR2 instead, to the process whose number is in ``process_file``.
    """

    def __init__(self, process_file: "str") -> "None":
        self._previous = None  # type: Any
        self._process_file = os.path.abspath(process_file)

    def arm_on_request(self) -> "None":
        signal.signal(signal.SIGUSR2, self._interrupt_on_request)
        os.makedirs(os.path.dirname(self._process_file), exist_ok=True)
        with open(self._process_file, "w") as file:
            file.write("%d\n" % os.getpid())

    def arm(self) -> "None":
        if self._previous is None:
            self._previous = signal.signal(signal.SIGTERM, self._interrupt)

    @staticmethod
    def _interrupt(number: "int", frame: "FrameType | None") -> "NoReturn":
        # Once: a second signal must not interrupt the checkpoint.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _StopRequest()

    @staticmethod
    def _interrupt_on_request(number: "int", frame: "FrameType | None") -> "NoReturn":
        for other in (signal.SIGUSR2, signal.SIGTERM):
            signal.signal(other, signal.SIG_IGN)
        raise _StopRequest(is_restarted=True)

    def disarm(self) -> "None":
        try:
            os.unlink(self._process_file)
        except OSError:
            pass
        if signal.getsignal(signal.SIGUSR2) == self._interrupt_on_request:
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        if self._previous is not None and signal.getsignal(signal.SIGTERM) == self._interrupt:
            signal.signal(signal.SIGTERM, self._previous)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: "IO[bytes]", resolve: "Callable[[str, str], Any]") -> "None":
        super().__init__(file)
        self._resolve = resolve

    def persistent_load(self, pid: "Any") -> "Any":
        kind, path = pid
        return self._resolve(kind, path)


def _checkpoint_of(function: "Any") -> "Callable[..., Any] | None":
    """The method that is asked before an interruption, by one of submitit's names for it."""
    checkpoint = getattr(function, "__submitit_checkpoint__", None) or getattr(function, "checkpoint", None)
    return checkpoint if callable(checkpoint) else None


def _run_coroutine(coroutine: "CoroutineType[Any, Any, Any]") -> "Any":
    """The result of a function that is defined with ``async def``."""
    import asyncio

    run = getattr(asyncio, "run", None)
    if run is not None:
        return run(coroutine)
    loop = asyncio.new_event_loop()  # Python 3.6
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()


def _traceback_of(error: "BaseException") -> "str":
    """The traceback as Python prints it, with causes; without the frames of the runtime, which is an archive
    or precompiled: they say nothing to the user."""
    from traceback import StackSummary, TracebackException

    runtime = os.path.join("pairuntime", "task")
    whole = TracebackException(type(error), error, error.__traceback__)
    pending = [whole]  # type: list[TracebackException]
    while pending:
        part = pending.pop()
        own = [frame for frame in part.stack if not os.path.dirname(frame.filename).endswith(runtime)]
        part.stack = StackSummary.from_list(own)
        pending += [chained for chained in (part.__cause__, part.__context__) if chained is not None]
        pending += getattr(part, "exceptions", None) or []  # of an ExceptionGroup
    return "".join(whole.format())


def _message_of(error: "BaseException") -> "str":
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the user's code
        return "(the exception cannot be shown as text)"


def _dumps(value: "object") -> "bytes":
    """Pickle a value; with cloudpickle only what needs it, because importing it takes longer than a call."""
    if "cloudpickle" not in sys.modules:
        try:
            return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001 - pickling calls the user's code
            pass
    try:
        import cloudpickle
    except ImportError:  # the SDK did not send it
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return bytes(cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))


def open_storage(request: "Request") -> "Storage":
    if request.address:
        return Storage(request.address, user=request.user)
    address = os.environ.get("PAI_REST_SERVER_URI", "").rstrip("/") + "/webhdfs/v1"
    return Storage(address, os.environ.get("PAI_USER_TOKEN", ""), os.environ.get("PAI_USER_NAME", ""))
