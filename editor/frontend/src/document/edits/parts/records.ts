// Small changes of plain objects that keep the order of keys and return what they got when nothing changes.

/** The requested edit is impossible; the message says why and what to do instead. */
export class EditRefused extends Error {
  override readonly name = "EditRefused";
}

/** A reason as a sentence of its own. */
export function sentence(reason: string): string {
  return `${reason.charAt(0).toUpperCase()}${reason.slice(1)}.`;
}

export type Fields = Record<string, unknown>;

const ORDER: Record<string, number> = Object.fromEntries(
  ["format", "name", "description", "weights", "states", "nodes", "walks", "streams", "tasks", "layout"].map(
    (key, index) => [key, index],
  ),
);
const WALK_ORDER: Record<string, number> = Object.fromEntries(
  ["label", "inputs", "body", "merges", "edges", "results"].map((key, index) => [key, index]),
);

/** With `key` set; taken away where `value` is undefined. A value like the one before changes nothing. */
export function withKey<T extends object>(record: T, key: string, value: unknown): T {
  const fields = record as Fields;
  if (value === undefined) {
    if (!(key in fields)) return record;
    return Object.fromEntries(Object.entries(fields).filter(([name]) => name !== key)) as T;
  }
  return key in fields && alike(fields[key], value) ? record : ({ ...fields, [key]: value } as T);
}

/** True if both are written alike. Unchanged parts are the same objects, so few are compared in depth. */
export function alike(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [left, right] = [Object.entries(a), Object.entries(b)];
  return (
    left.length === right.length &&
    left.every(([key, value], index) => right[index]![0] === key && alike(value, right[index]![1]))
  );
}

/** With each field set; null and undefined remove it. */
export function withFields<T extends object>(record: T, fields: object): T {
  return Object.entries(fields).reduce((made, [key, value]) => withKey(made, key, value ?? undefined), record);
}

/** With a new key where the document's order has it, if it has one. */
function inOrder<T extends object>(record: T, key: string, value: unknown, order: Record<string, number>): T {
  if (value === undefined || key in record) return withKey(record, key, value);
  const own = order[key] ?? Number.MAX_SAFE_INTEGER;
  const entries = Object.entries(record);
  const before = entries.findIndex(([name]) => (order[name] ?? -1) > own);
  const position = before < 0 ? entries.length : before;
  return Object.fromEntries([...entries.slice(0, position), [key, value], ...entries.slice(position)]) as T;
}

/** A part of the document; one that gets empty and is no longer needed goes. */
export function withSection<T extends object>(graph: T, key: string, value: object | undefined): T {
  return inOrder(graph, key, emptied(graph, key, value), ORDER);
}

/** A part of a Walk, likewise; the body always stays. */
export function withWalkPart<T extends object>(walk: T, key: string, value: unknown): T {
  return inOrder(walk, key, key === "body" ? value : emptied(walk, key, value), WALK_ORDER);
}

/** An empty part stays only where the author wrote it so. */
function emptied<T>(record: object, key: string, value: T): T | undefined {
  const before = (record as Fields)[key];
  return isEmpty(value) && !(before === value || isEmpty(before)) ? undefined : value;
}

export function isEmpty(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  return Array.isArray(value) ? value.length === 0 : Object.keys(value).length === 0;
}

/** An optional record inside `record`; taken away when it gets empty. */
export function withPart<T extends object>(record: T, key: string, value: object | undefined): T {
  return withKey(record, key, value === undefined ? undefined : emptied(record, key, value));
}

/** The same entries in the same order, one under another key. */
export function withRenamed<T>(record: Record<string, T>, from: string, to: string): Record<string, T> {
  if (from === to || !(from in record)) return record;
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key === from ? to : key, value]));
}

/** Entries changed one by one; the same record when none is. */
export function mapped<T>(record: Record<string, T>, change: (value: T, key: string) => T): Record<string, T> {
  const made = Object.entries(record).map(([key, value]) => [key, change(value, key)] as const);
  return made.every(([key, value]) => record[key] === value) ? record : Object.fromEntries(made);
}

/** Items changed one by one; the same list when none is. */
export function mappedList<T>(list: readonly T[], change: (value: T, index: number) => T): T[] {
  const made = list.map(change);
  return made.every((value, index) => value === list[index]) ? (list as T[]) : made;
}

/** The same list when nothing is left out. */
export function kept<T>(list: readonly T[], keep: (value: T, index: number) => boolean): T[] {
  const made = list.filter(keep);
  return made.length === list.length ? (list as T[]) : made;
}

/** The same entries, `key` at another position. */
export function withMoved<T>(record: Record<string, T>, key: string, index: number): Record<string, T> {
  const order = Object.keys(record).filter((name) => name !== key);
  order.splice(Math.max(0, Math.min(index, order.length)), 0, key);
  if (order.every((name, position) => name === Object.keys(record)[position])) return record;
  return Object.fromEntries(order.map((name) => [name, record[name]!]));
}

/** With `key` right after `before`. */
export function withAfter<T>(record: Record<string, T>, before: string, key: string, value: T): Record<string, T> {
  const made = { ...record, [key]: value };
  return withMoved(made, key, Object.keys(record).indexOf(before) + 1);
}
