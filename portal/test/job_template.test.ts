import assert from "node:assert/strict";
import { test } from "node:test";
import { formOf, missingSecrets } from "../src/editor/job_file.ts";
import { jobOfTemplate, templateOf } from "../src/editor/job_template.ts";

const JOB = `# of the team
protocolVersion: 2
name: digits_abcdef
type: job
prerequisites:
  - {name: image, type: dockerimage, uri: python:3.12}
taskRoles:
  main:
    dockerImage: image
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: [train <% $secrets.KEY %>]
`;

test("a template has no files of its user", () => {
  const sources = "extras:\n  openpaisdk:\n    sources: {sha256: abc, size: 3}\n";
  const kept = templateOf(JOB + sources);
  assert.equal(formOf(kept)?.more?.sources, null);
  assert.ok(kept.startsWith("# of the team\n"));
  assert.equal(templateOf(JOB), JOB);
});

test("a job of a template has a name of its own, and the comments", () => {
  const job = jobOfTemplate(JOB);
  assert.match(formOf(job)?.basics.name ?? "", /^digits_[a-z0-9]{6}$/);
  assert.notEqual(formOf(job)?.basics.name, "digits_abcdef");
  assert.ok(job.startsWith("# of the team\n"));
});

test("masked secrets are entered again", () => {
  const job = jobOfTemplate(`${JOB}secrets: "******"\n`);
  assert.deepEqual(missingSecrets(job, new Map()), ["KEY"]);
});
