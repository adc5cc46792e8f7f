"""Serve the model of a training job until the job is stopped: python serve.py JOB

POST a picture to /predict. GET /healthz tells whether the model recognises what it must: a program that
answers but has lost its model is not healthy.
"""

import json
import os
import random
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from digits import LABELS, SIZE, Classifier, decode_pgm, draw

# here: the cluster that runs this job
subprocess.run(
    ["hdfs", "dfs", "-get", "-f", "pai://here/jobs/%s/output/model.json" % sys.argv[1], "."], check=True
)
with open("model.json") as f:
    MODEL = Classifier.loads(f.read())


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/healthz":
            self.send_error(404, "POST a picture to /predict, or GET /healthz")
            return
        is_healthy = all(MODEL.predict(draw(label, random.Random(label))) == label for label in LABELS)
        self.answer(200 if is_healthy else 503, {"healthy": is_healthy})

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        try:
            if self.path != "/predict" or length > 64 + SIZE * SIZE:
                raise ValueError("POST a picture of %d x %d pixels to /predict" % (SIZE, SIZE))
            self.answer(200, {"label": MODEL.predict(decode_pgm(self.rfile.read(length)))})
        except ValueError as e:
            self.answer(400, {"error": str(e)})

    def answer(self, status, value):
        body = json.dumps(value).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


port = int(os.environ["PAI_CONTAINER_HOST_http_PORT_LIST"].split(",")[0])
print("Listening on port %d" % port, flush=True)
ThreadingHTTPServer(("", port), Answers).serve_forever()
