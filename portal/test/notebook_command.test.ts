import assert from "node:assert/strict";
import { test } from "node:test";
import { notebookCommand, notebookOf } from "../src/editor/notebook_command.ts";

test("a notebook is read from the command that runs it", () => {
  const run = {
    path: "my notebooks/train.ipynb",
    parameters: [
      { name: "lr", value: "0.1" },
      { name: "text", value: "a=b c" },
    ],
  };
  assert.equal(notebookCommand(run), "pai-runtime notebook -p lr=0.1 -p 'text=a=b c' 'my notebooks/train.ipynb'");
  assert.deepEqual(notebookOf(notebookCommand(run)), run);
});

test("the command of pai notebook-job is one", () => {
  const line =
    "if command -v pai-runtime >/dev/null 2>&1; then pai-runtime notebook -p steps=1 train.ipynb; " +
    'else "$(command -v python3 || command -v python)" "$pai_runtime" notebook -p steps=1 train.ipynb; fi';
  assert.deepEqual(notebookOf(line), { path: "train.ipynb", parameters: [{ name: "steps", value: "1" }] });
});

test("other commands are none", () => {
  for (const line of [
    "python train.py",
    "pai-runtime notebook",
    "pai-runtime packages a.ipynb",
    "pai-runtime notebook a.ipynb && rm x",
    "pai-runtime notebook --parameters {} a.ipynb",
  ]) {
    assert.equal(notebookOf(line), null);
  }
});
