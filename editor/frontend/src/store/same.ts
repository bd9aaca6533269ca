// Compares two JSON values. The order of keys counts (Walks are shown in it), undefined fields don't.
import type { Documents } from "./types";

/** However their numbers are written. */
export function sameDocuments(a: Documents, b: Documents): boolean {
  return same(a.graph, b.graph) && same(a.placement, b.placement);
}

export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const left = fields(a);
  const right = fields(b);
  if (left.length !== right.length) return false;
  return left.every(([key, value], index) => {
    const other = right[index];
    return other !== undefined && other[0] === key && same(value, other[1]);
  });
}

function fields(value: object): [string, unknown][] {
  return Object.entries(value).filter(([, entry]) => entry !== undefined);
}
