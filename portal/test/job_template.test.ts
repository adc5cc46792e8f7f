import assert from "node:assert/strict";
import { test } from "node:test";
import { formOf, missingSecrets } from "../src/editor/job_file.ts";
import { jobOfTemplate, missingFiles } from "../src/editor/job_template.ts";

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

test("a job of a template names its files", () => {
  const sources = "extras:\n  openpaisdk:\n    sources: {sha256: abc, size: 3}\n";
  for (const secrets of ["", `secrets: "******"\n`]) {
    assert.deepEqual(formOf(jobOfTemplate(JOB + sources + secrets))?.more?.sources, { sha256: "abc", size: 3 });
  }
});

test("missing files are explained by who has them", () => {
  const template = { username: "alice", name: "digits" };
  assert.match(missingFiles(template, "bob"), /belong to alice: a template does not share files\. Add yours/);
  assert.match(missingFiles(template, "alice"), /no longer on the cluster\. Add them again/);
  assert.match(missingFiles(null, "alice"), /^The files that this job names/);
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
