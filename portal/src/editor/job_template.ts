// Templates: job files that users keep to start from. Secrets and files of a job are not part of them.
import { parse } from "yaml";
import { MASK, nextName, type JobConfig } from "./job_copy.ts";
import { copyText, formOf, withChange } from "./job_file.ts";

/** The text of a job as a template: without its files, which other users cannot read. */
export function templateOf(text: string): string {
  return formOf(text)?.more?.sources ? withChange(text, { more: "sources", value: null }) : text;
}

/**
 * The text of a new job from a template. It keeps the template's comments, unless the template has masked secrets: then the
 * text is generated, with an empty value for each secret.
 */
export function jobOfTemplate(protocol: string): string {
  const config = parse(protocol) as JobConfig;
  const name = nextName(String(config["name"]));
  return config["secrets"] === MASK ? copyText(config, name) : withChange(protocol, { basic: "name", value: name });
}
