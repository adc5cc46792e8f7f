// The user's columns: kept on the server with the user, and in this browser, where the first request finds them.
import { signal } from "@preact/signals";
import { keepInExtension, ownUser } from "../api.ts";
import { onOtherUser, session } from "../session.ts";
import { columnsOf, DEFAULT_COLUMNS } from "./columns.ts";

/** Name in the user's extension. */
const KEPT = "portalJobColumns";
const here = () => `pai-job-columns ${session.value?.user ?? ""}`;

const chosen = signal<readonly string[] | undefined>(undefined);
let isLoaded = false;
onOtherUser(() => {
  chosen.value = undefined;
  isLoaded = false;
});

/** Ids of the columns of the user. */
export function jobColumns(): readonly string[] {
  return chosen.value ?? keptHere() ?? DEFAULT_COLUMNS;
}

export function isDefault(ids: readonly string[]): boolean {
  return ids.join("\n") === DEFAULT_COLUMNS.join("\n");
}

/** Take the columns that the user has chosen in another browser. */
export async function loadJobColumns(): Promise<void> {
  if (isLoaded) return;
  isLoaded = true;
  const user = session.value?.user;
  const { extension } = await ownUser();
  if (session.value?.user !== user) return;
  const found = idsOf((extension as Readonly<Record<string, unknown>>)[KEPT]);
  if (found && found.join("\n") !== jobColumns().join("\n")) show(found);
}

/** Show these columns from now on; fails where the server does not keep them. */
export async function keepJobColumns(ids: readonly string[]): Promise<void> {
  isLoaded = true;
  show(ids);
  await keepInExtension(KEPT, ids);
}

function show(ids: readonly string[]): void {
  chosen.value = ids;
  localStorage.setItem(here(), JSON.stringify(ids));
}

function keptHere(): readonly string[] | undefined {
  try {
    return idsOf(JSON.parse(localStorage.getItem(here()) ?? "null"));
  } catch {
    return undefined;
  }
}

/** Another program may have written anything. */
function idsOf(value: unknown): readonly string[] | undefined {
  if (!Array.isArray(value)) return undefined;
  return columnsOf(value.filter((one) => typeof one === "string")).map(({ id }) => id);
}
