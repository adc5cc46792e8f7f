// The address: a path and a query behind the `#`, so that the portal works below any path of a server.
import { signal } from "@preact/signals";
import { encodePath } from "./files/paths.ts";
import { replaceEntry, saveScroll } from "./history_entry.ts";

export interface Address {
  readonly path: string;
  readonly query: URLSearchParams;
}

export const address = signal<Address>(parse(location.hash));

addEventListener("hashchange", () => {
  address.value = parse(location.hash);
});

export function parse(hash: string): Address {
  const [path = "", query = ""] = hash.replace(/^#/, "").split("?", 2);
  return { path: path.startsWith("/") ? path : "/", query: new URLSearchParams(query) };
}

type QueryValues = Readonly<Record<string, string | undefined>>;

/** Link to a page; values that are empty are left out. */
export function href(path: string, values: QueryValues = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value) query.set(name, value);
  const text = query.toString();
  return `#${path}${text ? `?${text}` : ""}`;
}

export function navigate(to: string, { replace = false } = {}): void {
  if (to !== location.hash) {
    if (replace) replaceEntry(to);
    else {
      saveScroll();
      history.pushState(null, "", to);
    }
  }
  address.value = parse(location.hash);
}

/** Change some values of the query, and stay on the page; Back undoes it, unless it replaces the entry of the history. */
export function setQuery(changes: QueryValues, { replace = false } = {}): void {
  const values: Record<string, string | undefined> = Object.fromEntries(address.value.query);
  navigate(href(address.value.path, { ...values, ...changes }), { replace });
}

export function jobHref(framework: string, values: QueryValues = {}): string {
  return href(`/jobs/${encodeURIComponent(framework)}`, values);
}

/** Link to a folder or file of a storage. */
export function filesHref(storage: string, path: string): string {
  return href(`/files/${encodeURIComponent(storage)}${encodePath(path)}`);
}
