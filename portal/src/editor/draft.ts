// Jobs that were changed, but not submitted: kept while the user looks at other pages.
import type { NewFile } from "../files/upload.ts";
import { onOtherUser } from "../session.ts";

export interface Draft {
  readonly text: string;
  readonly secrets: ReadonlyMap<string, string>;
  readonly files: readonly NewFile[];
}

/** By the job that each is a copy of; empty: a new job. In memory only, because of the secrets. */
const drafts = new Map<string, Draft>();

onOtherUser(() => drafts.clear());

addEventListener("beforeunload", (event) => {
  if (drafts.size) event.preventDefault();
});

export function draftOf(original: string): Draft | undefined {
  return drafts.get(original);
}

export function keepDraft(original: string, draft: Draft): void {
  drafts.set(original, draft);
}

export function dropDraft(original: string): void {
  drafts.delete(original);
}
