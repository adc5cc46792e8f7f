// What a folder's table shows: entries that match, in the order that the address names.
import type { Entry } from "./storage.ts";

export const ORDERS = ["name", "size", "modified"] as const;
export type OrderField = (typeof ORDERS)[number];

export interface Order {
  readonly field: OrderField;
  readonly isDescending: boolean;
}

/** "size" or "-size", as in the address. */
export function parseOrder(text: string): Order {
  const name = text.replace(/^-/, "");
  const field = ORDERS.find((one) => one === name) ?? "name";
  return { field, isDescending: field === name && text.startsWith("-") };
}

export function orderText({ field, isDescending }: Order): string | undefined {
  return isDescending ? `-${field}` : field === "name" ? undefined : field;
}

const names = new Intl.Collator("en", { numeric: true });

/** Entries whose name contains the text; folders first. */
export function arranged(entries: readonly Entry[], filter: string, order: Order): Entry[] {
  const wanted = filter.trim().toLowerCase();
  const matches = wanted ? entries.filter((entry) => entry.name.toLowerCase().includes(wanted)) : [...entries];
  const sign = order.isDescending ? -1 : 1;
  const field = order.field;
  const byName = (one: Entry, other: Entry) => names.compare(one.name, other.name);
  const compare =
    field === "name"
      ? (one: Entry, other: Entry) => sign * byName(one, other)
      : (one: Entry, other: Entry) => sign * (one[field] - other[field]) || byName(one, other);
  return matches.sort((one, other) => Number(other.isFolder) - Number(one.isFolder) || compare(one, other));
}
