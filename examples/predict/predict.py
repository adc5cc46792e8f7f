"""Read the model of the job `train` and questions from the storage; write the predictions back there."""

import json
import os
import sys

import fsspec

HOME = "pai://{}/0/user/{}".format(os.environ.get("PAI_CLUSTER", "local"), os.environ["PAI_USER_NAME"])

with fsspec.open(f"{HOME}/jobs/train/output/model.json") as f:
    model = json.load(f)
with fsspec.open(f"{HOME}/{sys.argv[1]}", "rt") as f:
    questions = [float(line) for line in f if line.strip()]
answers = [model["slope"] * x + model["offset"] for x in questions]
with fsspec.open(f"{HOME}/{sys.argv[2]}", "wt") as f:
    f.writelines(f"{x},{y:.3f}\n" for x, y in zip(questions, answers))
print(f"{len(answers)} predictions are in {HOME}/{sys.argv[2]}")
