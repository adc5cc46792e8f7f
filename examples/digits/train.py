"""Train on a pack of pictures, and leave the model among the job's results: python train.py PACK"""

import os
import sys

from digits import Classifier, decode_pgm

from openpaisdk.data import RecordStream
from openpaisdk.runtime import log_metrics


def decode(key, content):
    """Label and pixels of a record; its key is the path of the file that was packed."""
    return int(key.split("/")[0]), decode_pgm(content)


stream = RecordStream(sys.argv[1], shuffle=True, seed=1, decode=decode)
model = Classifier()
for epoch in range(5):
    stream.set_epoch(epoch)
    results = [model.learn(label, pixels) for label, pixels in stream]
    accuracy = sum(results) / len(results)
    log_metrics(epoch, accuracy=accuracy)
    print("epoch %d: %d pictures, %.1f %% recognised" % (epoch, len(results), 100 * accuracy), flush=True)
with open(os.path.join(os.environ.get("PAI_OUTPUT_DIR", "."), "model.json"), "w") as f:
    f.write(model.dumps())
