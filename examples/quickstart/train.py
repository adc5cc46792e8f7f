"""Train a small neural network to tell two spirals apart. Standard library only: nothing to download.

    pai sub --follow -- python train.py --epochs 100

Each epoch prints the loss and how many of the points it has never seen are told apart; the trained network is
written to model.json in the folder the job runs in.
"""

import argparse
import json
import math
import random
import time


def spirals(count, noise, rng):
    """Points of two arms that wind around each other: ((x, y), arm)."""
    points = []
    for i in range(count):
        arm = i % 2
        along = 0.25 + 0.75 * rng.random()
        angle = along * 3 * math.pi + arm * math.pi
        x = along * math.cos(angle) + rng.gauss(0, noise)
        y = along * math.sin(angle) + rng.gauss(0, noise)
        points.append(((x, y), arm))
    return points


class Network:
    """Two inputs, one hidden layer of tanh units, one sigmoid output."""

    def __init__(self, hidden, rng):
        self.inner = [[rng.gauss(0, 3), rng.gauss(0, 3), rng.gauss(0, 2)] for _ in range(hidden)]
        self.outer = [rng.gauss(0, 0.3) for _ in range(hidden)]
        self.bias = 0.0

    def forward(self, point):
        x, y = point
        hidden = [math.tanh(a * x + b * y + c) for a, b, c in self.inner]
        score = self.bias + sum(w * h for w, h in zip(self.outer, hidden))
        return hidden, 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))

    def learn(self, point, label, rate):
        """One step of gradient descent; the loss before it."""
        hidden, guess = self.forward(point)
        error = guess - label
        x, y = point
        for i, h in enumerate(hidden):
            back = error * self.outer[i] * (1 - h * h)
            self.outer[i] -= rate * error * h
            weights = self.inner[i]
            weights[0] -= rate * back * x
            weights[1] -= rate * back * y
            weights[2] -= rate * back
        self.bias -= rate * error
        return -math.log(max(1e-12, guess if label else 1 - guess))

    def accuracy(self, points):
        right = sum((self.forward(point)[1] > 0.5) == bool(label) for point, label in points)
        return right / len(points)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--hidden", type=int, default=24)
    parser.add_argument("--rate", type=float, default=0.08)
    args = parser.parse_args()

    rng = random.Random(7)
    train, unseen = spirals(800, 0.05, rng), spirals(400, 0.05, rng)
    network = Network(args.hidden, rng)
    began = time.monotonic()
    for epoch in range(1, args.epochs + 1):
        rng.shuffle(train)
        loss = sum(network.learn(point, label, args.rate) for point, label in train) / len(train)
        if epoch % 5 == 0 or epoch in (1, args.epochs):
            print(f"epoch {epoch:3}  loss {loss:.4f}  accuracy {network.accuracy(unseen):.1%}", flush=True)
    with open("model.json", "w") as f:
        json.dump({"inner": network.inner, "outer": network.outer, "bias": network.bias}, f)
    print(f"trained in {time.monotonic() - began:.1f} s, saved model.json")


if __name__ == "__main__":
    main()
