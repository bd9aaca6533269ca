// JSON that is written back as it was read: a number like `4.0` stays `4.0` while nobody changes it.
import { isLosslessNumber, parse as parseLossless } from "lossless-json";
import { join, split, at } from "./pointer";
import type { Pointer } from "./types";

/** Where a number stood -> how it was written, for those that `String(number)` would write otherwise. */
export type Sources = ReadonlyMap<Pointer, string>;

export function parse(text: string): { value: unknown; sources: Sources } {
  const sources = new Map<Pointer, string>();
  const plain = (value: unknown, path: (string | number)[]): unknown => {
    if (isLosslessNumber(value)) {
      const number = Number(value.value);
      if (String(number) !== value.value) sources.set(join(...path), value.value);
      return number;
    }
    if (Array.isArray(value)) return value.map((child, index) => plain(child, [...path, index]));
    if (typeof value === "object" && value !== null)
      return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, plain(child, [...path, key])]));
    return value;
  };
  return { value: plain(parseLossless(text), []), sources };
}

/** Compact, as the service stores documents. */
export function print(value: unknown, sources: Sources = new Map()): string {
  const kept = new Map([...sources].filter(([pointer, text]) => at(value, pointer) === Number(text)));
  if (kept.size === 0) return JSON.stringify(value);
  const under = new Set([...kept.keys()].flatMap((pointer) => prefixes(pointer)));
  const write = (child: unknown, here: Pointer): string => {
    const source = kept.get(here);
    if (source !== undefined) return source;
    if (!under.has(here) || typeof child !== "object" || child === null) return JSON.stringify(child);
    if (Array.isArray(child)) return `[${child.map((entry, index) => write(entry, here + join(index))).join(",")}]`;
    const entries = Object.entries(child).filter(([, entry]) => entry !== undefined);
    return `{${entries.map(([key, entry]) => `${JSON.stringify(key)}:${write(entry, here + join(key))}`).join(",")}}`;
  };
  return write(value, "");
}

function prefixes(pointer: Pointer): Pointer[] {
  const parts = split(pointer);
  return parts.map((_, index) => join(...parts.slice(0, index)));
}
