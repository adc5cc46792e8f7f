"""Answer questions with the model that the job `train` left: GET /?x=0.5"""

import json
import os
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

MODEL_ADDRESS = "pai://here/jobs/train/output/model.json"  # here: the cluster that runs this job
subprocess.run(["hdfs", "dfs", "-get", "-f", MODEL_ADDRESS, "model.json"], check=True)
with open("model.json") as f:
    MODEL = json.load(f)


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            x = float(parse_qs(urlsplit(self.path).query)["x"][0])
        except (KeyError, ValueError):
            self.send_error(400, "ask with a number: /?x=0.5")
            return
        body = json.dumps({"x": x, "y": MODEL["slope"] * x + MODEL["offset"]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


port = int(os.environ["PAI_CONTAINER_HOST_http_PORT_LIST"].split(",")[0])
print(f"Listening on {os.environ['PAI_CURRENT_CONTAINER_IP']}:{port}", flush=True)
ThreadingHTTPServer(("", port), Answers).serve_forever()
