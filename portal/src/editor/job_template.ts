// Templates: job files that users keep to start from. Values of secrets are not part of them; files of a job are named by
// their SHA-256, and belong to the users who uploaded them.
import { parse } from "yaml";
import { MASK, nextName, type JobConfig } from "./job_copy.ts";
import { copyText, withChange } from "./job_file.ts";

/**
 * The text of a new job from a template. It keeps the template's comments, unless the template has masked secrets: then the
 * text is generated, with an empty value for each secret.
 */
export function jobOfTemplate(protocol: string): string {
  const config = parse(protocol) as JobConfig;
  const name = nextName(String(config["name"]));
  return config["secrets"] === MASK ? copyText(config, name) : withChange(protocol, { basic: "name", value: name });
}

/** What to do about files that a job names and its user does not have; `template`: what the job was started from. */
export function missingFiles(template: { readonly username: string; readonly name: string } | null, user: string): string {
  if (!template) {
    return "The files that this job names are not on the cluster, or belong to another user. Add them under Files, or remove them there to run without.";
  }
  if (template.username !== user) {
    return `The files of template ${template.name} belong to ${template.username}: a template does not share files. Add yours under Files, or remove them there to run without.`;
  }
  return `The files of template ${template.name} are no longer on the cluster. Add them again under Files, and save the template.`;
}
