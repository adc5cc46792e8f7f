"""Read the model of the job `train` and questions from the storage; write the predictions back there."""

import json
import os
import sys

import fsspec

HOME = f"pai://here/0/user/{os.environ['PAI_USER_NAME']}"  # here: the cluster that runs this job

with fsspec.open("pai://here/jobs/train/output/model.json") as f:
    model = json.load(f)
with fsspec.open(f"{HOME}/{sys.argv[1]}", "rt") as f:
    questions = [float(line) for line in f if line.strip()]
answers = [model["slope"] * x + model["offset"] for x in questions]
with fsspec.open(f"{HOME}/{sys.argv[2]}", "wt") as f:
    f.writelines(f"{x},{y:.3f}\n" for x, y in zip(questions, answers))
print(f"{len(answers)} predictions are in {HOME}/{sys.argv[2]}")
