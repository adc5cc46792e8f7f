"""Fit a line to measurements, watch the loss fall, and leave the model among the job's results."""

import json
import os
import random

from openpaisdk.runtime import Runtime, log_metrics

app = Runtime()


def measurements(count):
    """Points around y = 3x + 2."""
    dice = random.Random(1)
    return [(x, 3 * x + 2 + dice.gauss(0, 0.1)) for x in (dice.uniform(-1, 1) for _ in range(count))]


@app.on("start")
def greet():
    print("This runs in", repr(app.where))


@app.on("main")
def train():
    points = measurements(500)
    slope = offset = 0.0
    for step in range(200):
        errors = [(slope * x + offset - y, x) for x, y in points]
        slope -= 0.1 * sum(error * x for error, x in errors) / len(points) * 2
        offset -= 0.1 * sum(error for error, _ in errors) / len(points) * 2
        loss = sum(error * error for error, _ in errors) / len(points)
        log_metrics(step, loss=loss)
    print(f"y = {slope:.2f} x + {offset:.2f}, loss {loss:.4f}")
    with open(os.path.join(os.environ.get("PAI_OUTPUT_DIR", "."), "model.json"), "w") as f:
        json.dump({"slope": slope, "offset": offset}, f)


app.run()
