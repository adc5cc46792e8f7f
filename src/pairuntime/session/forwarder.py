"""Forwarder: connects clients with ports of one task, from where the task runs.

A process of the server's machine for each task and token, started with a control socket as its standard
input. The server sends it each client's connection and a port; it reports whether the port could be reached,
relays, and reports the end. Where the connections are the clients' own sockets they outlive the server.
"""

import errno
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import time

from pairuntime.session.multiplexer import Multiplexer
from pairuntime.supervisor import claim, exit_record, process_tree
from pairuntime.transport.relay import (
    MAX_MESSAGE_BYTES,
    REFUSED,
    TIMEOUT,
    Relay,
    RelayLoop,
    Stream,
    WebSocketStream,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs time
    from typing import Any, Callable

# Addresses at which a service of the task may listen. No client chooses one.
LOOPBACK = ("127.0.0.1", "::1")

# A port of the same machine answers at once; a service with a full queue may take longer.
_CONNECT_TIMEOUT_S = 10.0
# For the program that runs the node's end to notice that it has ended, before it is killed.
_NODE_EXIT_S = 10.0
# How soon the end of the task is noticed.
_CHECK_INTERVAL_S = 1.0
# For a container that is being created, and between two questions where it is.
_CONTAINER_TIMEOUT_S = 60.0
_CONTAINER_WAIT_S = 0.2
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


class Forwarder:
    """Connections to ports of this machine, by the numbers that the server gave them."""

    def __init__(self, loop: "RelayLoop", report: "Callable[..., None]") -> "None":
        self._loop = loop
        self._report = report
        self._waiting = {}  # type: dict[int, tuple[Stream, socket.socket]]
        self._dials = set()  # type: set[_Dial]

    @property
    def is_idle(self) -> "bool":
        return not (self._dials or self._waiting or self._loop.relays)

    def open(self, number: "int", port: "int", client: "Stream") -> "None":
        """Connect a port with a client. Nothing is sent to the client before `start`."""

        def reached(target: "socket.socket") -> "None":
            self._dials.discard(dial)
            self._waiting[number] = client, target
            self._report(id=number)

        def failed(why: "str") -> "None":
            self._dials.discard(dial)
            client.close()
            self._report(id=number, error=why)

        dial = _Dial(self._loop, port, reached, failed)
        self._dials.add(dial)
        dial.start()

    def start(self, number: "int") -> "None":
        if number in self._waiting:
            client, target = self._waiting.pop(number)
            Relay(self._loop, client, Stream(target), lambda: self._report(ended=number))

    def drop_waiting(self) -> "None":
        """Drop the connections that wait for a response of the server, which is gone."""
        for client, target in self._waiting.values():
            client.close()
            target.close()
        self._waiting.clear()

    def check_timeouts(self) -> "None":
        for dial in tuple(self._dials):
            dial.check_timeout()


class _Dial:
    """A connection to a port: the first address that accepts it."""

    def __init__(
        self,
        loop: "RelayLoop",
        port: "int",
        reached: "Callable[[socket.socket], None]",
        failed: "Callable[[str], None]",
    ) -> "None":
        self._loop = loop
        self._port = port
        self._reached = reached
        self._failed = failed
        self._addresses = list(LOOPBACK)
        self._deadline = time.time() + _CONNECT_TIMEOUT_S
        self._sock = None  # type: socket.socket | None

    def start(self) -> "None":
        """Try the next address."""
        while self._addresses:
            address = self._addresses.pop(0)
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as e:
                if e.errno in (errno.EMFILE, errno.ENFILE):
                    self._failed(os.strerror(e.errno))
                    return
                continue  # a machine without IPv6
            sock.setblocking(False)
            result = sock.connect_ex((address, self._port))
            if result == 0:
                self._succeed(sock)
                return
            if result == errno.EINPROGRESS:
                self._sock = sock
                self._loop.watch(sock, selectors.EVENT_WRITE, self._on_result)
                return
            sock.close()
        self._failed(REFUSED)

    def check_timeout(self) -> "None":
        if time.time() > self._deadline and self._sock is not None:
            self._forget().close()
            self._failed(TIMEOUT)

    def _on_result(self, events: "int") -> "None":
        sock = self._forget()
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            sock.close()
            self.start()
        else:
            self._succeed(sock)

    def _succeed(self, sock: "socket.socket") -> "None":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reached(sock)

    def _forget(self) -> "socket.socket":
        assert self._sock is not None
        sock, self._sock = self._sock, None
        self._loop.forget(sock)
        return sock


class Control:
    """The server's end of the control socket. Its end means that the server is gone."""

    def __init__(self, loop: "RelayLoop", sock: "socket.socket", handle: "Callable[..., None]") -> "None":
        self._loop = loop
        self._sock = sock
        self._handle = handle
        self.is_open = True
        sock.setblocking(False)
        loop.watch(sock, selectors.EVENT_READ, self._on_message)

    def report(self, **fields: "object") -> "None":
        if self.is_open:
            # In one packet, for which there is always room: the server reads whatever comes.
            self._sock.setblocking(True)
            try:
                self._sock.send(json.dumps(fields).encode())
            except OSError:
                pass  # the server is gone, which the next event tells
            self._sock.setblocking(False)

    def _on_message(self, events: "int") -> "None":
        try:
            data, ancillary, _, _ = self._sock.recvmsg(MAX_MESSAGE_BYTES, socket.CMSG_SPACE(4))
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self.is_open = False
            self._loop.forget(self._sock)
            self._sock.close()
            return
        fds = [struct.unpack("i", content[:4])[0] for _, _, content in ancillary]
        self._handle(json.loads(data.decode()), fds[0] if fds else -1)


def client_stream(fd: "int", is_framed: "bool") -> "Stream":
    sock = socket.socket(fileno=fd)
    return WebSocketStream(sock, masks=False) if is_framed else Stream(sock)


def run_local(folder: "str", pid_command: "list[str]") -> "int":
    """Serve the task of an attempt folder on this machine.

    ``pid_command``: prints the process of the task's container into whose network the forwarder goes; empty
    if the task is in that of the machine.
    """
    try:
        is_running = _claim_check(folder)
        spec = json.loads(claim.read_file(os.path.join(folder, "spec.json")).decode())
    except FileNotFoundError:
        return 0  # the task has just ended, and the server did not know yet
    if pid_command:
        ends = time.monotonic() + _CONTAINER_TIMEOUT_S
        while not _enter_network(pid_command):
            # A task runs from the moment its container is requested, which takes a second to create.
            if not is_running():
                return 0
            if time.monotonic() > ends:
                raise OSError("the network of the task cannot be entered")
            time.sleep(_CONTAINER_WAIT_S)
    loop = RelayLoop()

    def handle(message: "dict[str, Any]", fd: "int") -> "None":
        if "open" in message:
            forwarder.open(message["open"], message["port"], client_stream(fd, message["framed"]))
        elif "start" in message:
            forwarder.start(message["start"])

    control = Control(loop, take_control_socket(), handle)
    forwarder = Forwarder(loop, control.report)
    account = spec.get("account")
    if account and not pid_command and os.geteuid() == 0:
        # Services may ask who connects. The last step: see there.
        process_tree.take_account(account)
    while is_running() and (control.is_open or not forwarder.is_idle):
        if not control.is_open:
            forwarder.drop_waiting()
        loop.step(_CHECK_INTERVAL_S)
        forwarder.check_timeouts()
    loop.close()
    return 0


def run_with_command(folder: "str", node_command: "list[str]", account: "dict[str, Any] | None") -> "int":
    """Serve a task on another machine, where this command line runs the node's end (`run_on_node`).

    ``account``: that of the task, to which the command line changes.
    """
    control_socket = take_control_socket()
    node = subprocess.Popen(
        node_command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
    )
    assert node.stdin is not None and node.stdout is not None
    loop = RelayLoop()
    multiplexer = Multiplexer(
        loop, node.stdout.fileno(), node.stdin.fileno(), lambda message: report(message)
    )
    waiting = {}  # type: dict[int, int]

    def handle(message: "dict[str, Any]", fd: "int") -> "None":
        if "open" in message:
            waiting[message["open"]] = fd
        elif "start" in message and message["start"] in waiting:
            multiplexer.add(message["start"], socket.socket(fileno=waiting.pop(message["start"])))
        multiplexer.send_message(message)

    def report(message: "dict[str, Any]") -> "None":
        # From the task's account: nothing in it is trusted.
        number, ended, error = message.get("id"), message.get("ended"), message.get("error")
        if type(number) is int and number in waiting:
            if error:
                os.close(waiting.pop(number))
                control.report(id=number, error=_printable(error))
            else:
                control.report(id=number)
        elif type(ended) is int:
            control.report(ended=ended)

    control = Control(loop, control_socket, handle)
    if account is not None and os.geteuid() == 0 and process_tree.may_enter(account, folder):
        # It reads what the task's machine sends. The last step: see there.
        process_tree.take_account(account)
    while multiplexer.is_open and not os.path.lexists(os.path.join(folder, exit_record.NAME)):
        if not control.is_open and not multiplexer.has_channels:
            break
        loop.step(_CHECK_INTERVAL_S)
    loop.close()
    node.stdin.close()  # the node's end ends with it
    try:
        node.wait(_NODE_EXIT_S)
    except subprocess.TimeoutExpired:
        node.kill()
    return 0


def run_on_node() -> "int":
    """The node's end of a forwarder for a task of another machine, over standard input and output."""
    _raise_descriptor_limit()
    loop = RelayLoop()

    def handle(message: "dict[str, Any]") -> "None":
        if "open" in message:
            ours, theirs = socket.socketpair()
            clients[message["open"]] = ours
            client = WebSocketStream(theirs, masks=False) if message["framed"] else Stream(theirs)
            forwarder.open(message["open"], message["port"], client)
        elif "start" in message and message["start"] in clients:
            multiplexer.add(message["start"], clients.pop(message["start"]))
            forwarder.start(message["start"])

    def report(**fields: "object") -> "None":
        if "error" in fields:
            clients.pop(fields["id"]).close()  # type: ignore[call-overload]
        multiplexer.send_message(fields)

    clients = {}  # type: dict[int, socket.socket]
    multiplexer = Multiplexer(loop, 0, 1, handle)
    forwarder = Forwarder(loop, report)
    while multiplexer.is_open:
        loop.step(_CHECK_INTERVAL_S)
        forwarder.check_timeouts()
    loop.close()
    return 0


def _printable(text: "object") -> "str":
    return "".join(char if char.isprintable() else " " for char in str(text)[:200])


def take_control_socket(fd: "int" = 0) -> "socket.socket":
    """The control socket, no longer as standard input."""
    _raise_descriptor_limit()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    control = socket.socket(fileno=os.dup(fd))
    os.dup2(os.open(os.devnull, os.O_RDONLY), fd)
    return control


def _raise_descriptor_limit() -> "None":
    """Raise the limit of descriptors: each connection needs two."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _claim_check(folder: "str") -> "Callable[[], bool]":
    """A check whether the task runs; it also works under an account that cannot read the folder."""
    fd = os.open(os.path.join(folder, claim.NAME), os.O_RDWR)
    return lambda: claim.is_locked(fd)


def _enter_network(pid_command: "list[str]") -> "bool":
    """Go into the network of the container; False if it does not run yet.

    The container program is asked for a process of it. What processes say of themselves, such as a variable,
    any task can imitate: it would get the connections of another one.
    """
    import ctypes

    said = subprocess.run(
        pid_command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    pid = int(said.stdout) if said.returncode == 0 and said.stdout.strip().isdigit() else 0
    if not pid:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if os.readlink("/proc/%d/ns/net" % pid) == os.readlink("/proc/self/ns/net"):
            return False  # it is still being created
        with open("/proc/%d/ns/net" % pid) as network:
            if os.geteuid() != 0:
                with open("/proc/%d/ns/user" % pid) as user:
                    libc.setns(user.fileno(), _CLONE_NEWUSER)
            return bool(libc.setns(network.fileno(), _CLONE_NEWNET) == 0)
    except OSError:
        return False  # it has ended
