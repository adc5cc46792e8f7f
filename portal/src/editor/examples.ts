// Jobs to start from. Each runs as it is on a cluster that has the image and the resources.
import { newJob, withChange, type Change } from "./job_file.ts";

export interface Example {
  readonly name: string;
  readonly title: string;
  readonly about: string;
  /** The text of the job; `image` runs Python. */
  readonly text: (image: string) => string;
}

const PYTORCH = "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime";

function job(name: string, image: string, command: string, ...changes: readonly Change[]): string {
  return changes.reduce((text, change) => withChange(text, change), newJob({ name, image, command }));
}

/** Clusters that run no images run everything on the host. */
const imageOf = (wanted: string, image: string) => (image === "host" ? image : wanted);

export const EXAMPLES: readonly Example[] = [
  {
    name: "hello",
    title: "Hello, world",
    about: "One task prints where it runs and how many processors it has.",
    text: (image) => job("hello", image, "echo hello from $(hostname)\npython3 -c 'import os; print(os.cpu_count(), \"processors\")'"),
  },
  {
    name: "train",
    title: "Train on a GPU",
    about: "Your script and its files, one GPU, a time limit; what it writes to model/ is kept.",
    text: (image) =>
      job(
        "train",
        imageOf(PYTORCH, image),
        "python train.py --epochs 10 --out model",
        { basic: "gpu", value: 1 },
        { basic: "cpu", value: 4 },
        { basic: "memoryMB", value: 16_384 },
        { more: "timeLimitS", value: 8 * 3600 },
        { more: "outputs", value: ["model"] },
      ),
  },
  {
    name: "distributed",
    title: "Distributed training",
    about: "Two tasks of one gang; torchrun finds the first by the variables that every task has.",
    text: (image) =>
      job(
        "distributed",
        imageOf(PYTORCH, image),
        "torchrun --nnodes=$WORLD_SIZE --node-rank=$RANK --nproc-per-node=1 --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT train.py",
        { basic: "instances", value: 2 },
        { basic: "gpu", value: 1 },
        { basic: "cpu", value: 4 },
        { basic: "memoryMB", value: 16_384 },
      ),
  },
  {
    name: "metrics",
    title: "Log metrics",
    about: "A program logs its loss; the job's page plots it while the job runs.",
    text: (image) =>
      job(
        "metrics",
        image,
        [
          "python3 - <<'END'",
          "import time",
          "from openpaisdk.runtime import log_metrics",
          "for step in range(60):",
          "    log_metrics(step, loss=1 / (step + 1))",
          "    time.sleep(1)",
          "END",
        ].join("\n"),
      ),
  },
  {
    name: "server",
    title: "A web server",
    about: "Serves its working directory on a port of its own; Apps on the job's page opens it.",
    text: (image) => {
      const text = job("server", image, "python3 -m http.server $PAI_CONTAINER_HOST_web_PORT_LIST", { more: "timeLimitS", value: 3600 });
      return text.replace(/^( +)gpu: 0$/m, "$1gpu: 0\n$1ports:\n$1  web: 1");
    },
  },
  {
    name: "notebook",
    title: "A notebook",
    about: "Choose an .ipynb: all its cells run, and the executed notebook and a page of it are outputs.",
    text: (image) => job("notebook", image, "pai-runtime notebook notebook.ipynb"),
  },
];
