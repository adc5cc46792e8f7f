"""Convert pictures to TFRecords of ``tf.train.Example``, as TensorFlow's examples for MNIST do.

python convert_to_records.py --directory hdfs://HOST:PORT/test
"""

import argparse
import os
import subprocess
import sys
import tempfile

import tf_example
from digits import samples

parser = argparse.ArgumentParser()
parser.add_argument("--directory", required=True, help="folder of the records: hdfs://, pai:// or a path")
parser.add_argument("--count", type=int, default=1000, help="number of pictures (default: 1000)")
args = parser.parse_args()
with tempfile.TemporaryDirectory() as folder:
    for number, (label, pixels) in enumerate(samples(args.count)):
        with open(os.path.join(folder, "%06d" % number), "wb") as f:
            f.write(tf_example.encode({"image_raw": pixels, "label": label}))
    pack = ["pai", "pack", "--format", "tfrecord", "--shard-size", "64k", folder, args.directory]
    sys.exit(subprocess.run(pack).returncode)
