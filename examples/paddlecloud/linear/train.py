"""Linear regression with parameter servers, in plain Python: one program for both roles.

Each parameter server keeps a part of the parameters. The trainers fetch all of them, compute the gradient on
their own part of the data, and send it back. Requests and replies are lines of JSON.
"""

import json
import os
import random
import socket
import socketserver
import threading

NAMES = ("slope", "offset")
PASSES = 300
RATE = 0.05
EXAMPLES = 200

SERVERS = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
TRAINERS = int(os.environ["TRAINERS"])


class ParameterServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port, names):
        super().__init__(("", port), Connection)
        self.values = {name: 0.0 for name in names}
        self.finished = set()
        self.lock = threading.Lock()


class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        server = self.server
        for line in self.rfile:
            request = json.loads(line)
            with server.lock:
                for name, gradient in request.get("gradients", {}).items():
                    server.values[name] -= RATE * gradient
                if "finished" in request:
                    server.finished.add(request["finished"])
                reply = {"values": server.values, "finished": len(server.finished)}
                self.wfile.write(json.dumps(reply).encode() + b"\n")


class Parameters:
    """The parameters of all servers, as a trainer sees them."""

    def __init__(self):
        self.connections = []
        for endpoint in SERVERS:
            host, _, port = endpoint.rpartition(":")
            self.connections.append(connect(host, int(port)).makefile("rwb"))

    def ask(self, number, request):
        connection = self.connections[number]
        connection.write(json.dumps(request).encode() + b"\n")
        connection.flush()
        return json.loads(connection.readline())

    def fetch(self):
        values = {}
        for number in range(len(SERVERS)):
            values.update(self.ask(number, {})["values"])
        return values

    def send(self, gradients):
        for number in range(len(SERVERS)):
            own = {name: gradients[name] for name in names_of(number)}
            self.ask(number, {"gradients": own})

    def wait_for_all(self, trainer):
        """Say that this trainer has finished, and wait for the others."""
        ready = threading.Event()
        while self.ask(0, {"finished": trainer})["finished"] < TRAINERS:
            ready.wait(0.05)


def names_of(number):
    return NAMES[number :: len(SERVERS)]


def connect(host, port):
    """Connect to a server that may have to start yet."""
    pause = threading.Event()
    for _ in range(600):
        try:
            return socket.create_connection((host, port), timeout=60)
        except ConnectionRefusedError:
            pause.wait(0.1)
    raise SystemExit("The parameter server %s:%d does not answer." % (host, port))


def serve():
    own = os.environ["PADDLE_CURRENT_ENDPOINT"]
    with ParameterServer(int(os.environ["PADDLE_PORT"]), names_of(SERVERS.index(own))) as server:
        print("serving", ", ".join(server.values) or "nothing", "at", own, flush=True)
        server.serve_forever()


def train():
    trainer = int(os.environ["PADDLE_TRAINER_ID"])
    points = random.Random(0)
    data = [(x, 3 * x + 2) for x in (points.uniform(-1, 1) for _ in range(EXAMPLES))]
    own = data[trainer::TRAINERS]
    parameters = Parameters()
    for number in range(PASSES):
        values = parameters.fetch()
        errors = [(x, values["slope"] * x + values["offset"] - y) for x, y in own]
        loss = sum(error * error for _, error in errors) / len(errors)
        if number % 100 == 0:
            print("pass", number, "loss", round(loss, 6), flush=True)
        slope = sum(2 * error * x for x, error in errors) / len(errors)
        offset = sum(2 * error for _, error in errors) / len(errors)
        parameters.send({"slope": slope, "offset": offset})
    parameters.wait_for_all(trainer)
    if trainer == 0:
        values = parameters.fetch()
        os.makedirs("output", exist_ok=True)
        with open("output/model.json", "w") as f:
            json.dump(values, f)
        print("y = %.2f x + %.2f" % (values["slope"], values["offset"]))


if os.environ["PADDLE_TRAINING_ROLE"] == "PSERVER":
    serve()
else:
    train()
