"""Train on the TFRecords of convert_to_records.py; an interrupted training continues at its last checkpoint.

python mnist_train.py --train_dir hdfs://HOST:PORT/test --checkpoint_dir hdfs://HOST:PORT/checkpoint
"""

import argparse
import json
import os
import tempfile
from urllib.parse import urlsplit

import tf_example
from digits import Classifier

from openpaisdk.data import RecordStream
from openpaisdk.storage import Storage

parser = argparse.ArgumentParser()
parser.add_argument("--train_dir", required=True, help="folder of the records")
parser.add_argument("--checkpoint_dir", required=True, help="folder of the checkpoints, on an hdfs://")
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()


class Checkpoints:
    """One file, replaced after every epoch: it is always complete."""

    def __init__(self, address):
        self.storage = Storage.open(address)
        self.path = urlsplit(address).path.rstrip("/") + "/checkpoint.json"

    def load(self):
        if not self.storage.exists(self.path):
            return 0, Classifier()
        with tempfile.TemporaryDirectory() as folder:
            self.storage.download(self.path, os.path.join(folder, "checkpoint.json"))
            with open(os.path.join(folder, "checkpoint.json")) as f:
                saved = json.load(f)
        return saved["epochs"], Classifier(saved["weights"])

    def save(self, epochs, model):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "checkpoint.json"), "w") as f:
                json.dump({"epochs": epochs, "weights": model.weights}, f)
            self.storage.upload(os.path.join(folder, "checkpoint.json"), self.path)


stream = RecordStream(args.train_dir, shuffle=True, seed=1)
checkpoints = Checkpoints(args.checkpoint_dir)
first, model = checkpoints.load()
if first:
    print("continues after epoch %d" % (first - 1))
for epoch in range(first, args.epochs):
    stream.set_epoch(epoch)
    results = []
    for _, content in stream:
        example = tf_example.decode(content)
        results.append(model.learn(example["label"], example["image_raw"]))
    print(
        "epoch %d: %d pictures, %.1f %% recognised" % (epoch, len(results), 100 * sum(results) / len(results))
    )
    checkpoints.save(epoch + 1, model)
