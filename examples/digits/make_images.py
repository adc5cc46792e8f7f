"""Write pictures of digits, one file each: python make_images.py FOLDER COUNT [SEED]

The name of a picture's folder is its label.
"""

import os
import sys

from digits import encode_pgm, samples

folder, count = sys.argv[1], int(sys.argv[2])
for number, (label, pixels) in enumerate(samples(count, seed=int(sys.argv[3]) if sys.argv[3:] else 1)):
    os.makedirs(os.path.join(folder, str(label)), exist_ok=True)
    with open(os.path.join(folder, str(label), "%06d.pgm" % number), "wb") as f:
        f.write(encode_pgm(pixels))
