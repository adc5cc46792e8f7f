"""Predict the labels of all pictures of a pack with the model of a job: python predict.py JOB PACK RESULT"""

import sys

import fsspec
from digits import Classifier, decode_pgm

from openpaisdk.data import open_pack

job, pack, result = sys.argv[1:]
with fsspec.open("pai://here/jobs/%s/output/model.json" % job, "rt") as f:
    model = Classifier.loads(f.read())
count = right = 0
with fsspec.open(result, "wt") as f:  # the file appears when it is complete
    for key, content in open_pack(pack):
        label = model.predict(decode_pgm(content))
        f.write("%s,%d\n" % (key, label))
        count += 1
        right += key.startswith("%d/" % label)
print("%d pictures, %.1f %% recognised: %s" % (count, 100 * right / count, result))
