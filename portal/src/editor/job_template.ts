// Templates: job files that users keep to start from. Secrets and files of a job are not part of them.
import { parse } from "yaml";
import { MASK, nextName, type JobConfig } from "./job_copy.ts";
import { copyText, formOf, withChange } from "./job_file.ts";

/** What is kept of a job; its files are their owner's, and nobody else can use them. */
export function templateOf(text: string): string {
  return formOf(text)?.more?.sources ? withChange(text, { more: "sources", value: null }) : text;
}

/** A new job of a template, with its comments; one that had secrets is written anew, and lists them. */
export function jobOfTemplate(protocol: string): string {
  const config = parse(protocol) as JobConfig;
  const name = nextName(String(config["name"]));
  return config["secrets"] === MASK ? copyText(config, name) : withChange(protocol, { basic: "name", value: name });
}
