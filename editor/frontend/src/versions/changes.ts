// The contents of a list of differences: groups, and for changes the fields before and after. Pure.
import type { Difference } from "../document/diff";
import { strings } from "../strings";

export interface Group {
  key: string;
  title: string;
  differences: Difference[];
}

export interface FieldChange {
  /** `params.steps`, `steps #2.walk` of the second entry; empty: the whole value. */
  path: string;
  /** undefined: it wasn't there. */
  before: unknown;
  after: unknown;
}

const TITLES: Record<string, string> = {
  node: strings.versions.components,
  walk: strings.versions.walks,
  stream: strings.versions.streams,
  task: strings.versions.tasks,
  state: strings.versions.states,
  weights: strings.versions.weights,
  layout: strings.versions.layout,
};
const ORDER = Object.keys(TITLES);

/** By what they are of; what is inside a Walk stands under that Walk. Components first, then Walk by Walk. */
export function groups(differences: readonly Difference[]): Group[] {
  const found = new Map<string, Group>();
  for (const difference of differences) {
    const { key, title } = groupOf(difference);
    const group = found.get(key) ?? { key, title, differences: [] };
    group.differences.push(difference);
    found.set(key, group);
  }
  return [...found.values()].sort((a, b) => rank(a.key) - rank(b.key));
}

function groupOf(difference: Difference): { key: string; title: string } {
  const what = String(difference.what);
  if (difference.walk !== undefined && what !== "walk")
    return { key: `walk:${difference.walk}`, title: strings.versions.walk(difference.walk) };
  const known = TITLES[what];
  return known ? { key: what, title: known } : { key: "graph", title: strings.versions.theGraph };
}

function rank(key: string): number {
  const index = ORDER.indexOf(key);
  if (index >= 0) return index * 10;
  return key.startsWith("walk:") ? ORDER.indexOf("walk") * 10 + 1 : ORDER.length * 10;
}

/** `{added: 2, removed: 0, changed: 1}`. */
export function counts(differences: readonly Difference[]): Record<Difference["kind"], number> {
  const found = { added: 0, removed: 0, changed: 0 };
  for (const { kind } of differences) found[kind] += 1;
  return found;
}

/** The first text of a row: for a change whose fields are listed below it, only its subject. */
export function headline({ kind, what, text }: Difference): { text: string; listed: boolean } {
  if (kind !== "changed") return { text, listed: false };
  const colon = text.indexOf(": ");
  return colon < 0 ? { text, listed: what === "graph" } : { text: text.slice(0, colon), listed: true };
}

/** The leaves that differ: objects are gone into, and lists of as many objects as before; others are compared whole. */
export function fieldChanges(before: unknown, after: unknown, path = ""): FieldChange[] {
  if (same(before ?? undefined, after ?? undefined)) return [];
  if (areRecords(before) && areRecords(after) && before.length === after.length)
    return before.flatMap((entry, index) => fieldChanges(entry, after[index], `${path} #${index + 1}`.trim()));
  if (!isRecord(before) || !isRecord(after)) return [{ path, before, after }];
  const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return keys.flatMap((key) => fieldChanges(before[key], after[key], path ? `${path}.${key}` : key));
}

/** A value in one line, as short as it can be read; `undefined` is said in words. */
export function brief(value: unknown, limit = 120): string {
  if (value === undefined || value === null) return strings.versions.notSet;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function areRecords(value: unknown): value is Record<string, unknown>[] {
  return Array.isArray(value) && value.every(isRecord);
}

function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((entry, i) => same(entry, b[i]));
  if (!isRecord(a) || !isRecord(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => key in b && same(a[key], b[key]));
}
