// Names of the document, references to ports (`use.port`, `@in.x`), and how links are written.
import type { Item, Link, ResultFrom } from "./types";

const NAME = /^[A-Za-z][A-Za-z0-9_-]{0,63}$/;
const LONGEST = 64;
/** Words of the expression grammar. */
const RESERVED = new Set(["and", "or", "not", "true", "false"]);

export function isName(text: string): boolean {
  return NAME.test(text);
}

/** True if an expression can read a parameter or a loop index of this name. */
export function canBeNamed(name: string): boolean {
  return isName(name) && !name.includes("-") && !RESERVED.has(name);
}

/** `base`, or `base_2`, `base_3`, ... : the first that is a name and not taken. */
export function freshName(base: string, taken: Iterable<string>): string {
  const used = new Set(taken);
  const clean = base.replace(/[^A-Za-z0-9_-]+/g, "_").replace(/^[^A-Za-z]+/, "") || "item";
  const stem = clean.slice(0, LONGEST);
  if (!used.has(stem)) return stem;
  const root = stem.replace(/_\d+$/, "");
  for (let number = 2; ; number += 1) {
    const name = `${root.slice(0, LONGEST - 1 - String(number).length)}_${number}`;
    if (!used.has(name)) return name;
  }
}

/** `llm.tokens` -> ["llm", "tokens"]; what follows the first dot is the name. */
export function splitReference(reference: string): [owner: string, name: string] {
  const dot = reference.indexOf(".");
  return dot < 0 ? [reference, ""] : [reference.slice(0, dot), reference.slice(dot + 1)];
}

/** How the values of all iterations leave a loop: stacked (texts: joined), end to end, or as a list. */
export type Collect = boolean | "join" | "list";

export interface PlainLink {
  from: string;
  to: string;
  each: boolean;
  collect: Collect;
}

/** An edge in whatever form the author wrote it. What isn't text reads as an empty reference. */
export function readLink(link: Link): PlainLink {
  if (Array.isArray(link)) return { from: text(link[0]), to: text(link[1]), each: false, collect: false };
  const fields = (typeof link === "object" && link !== null ? link : {}) as unknown as Record<string, unknown>;
  return {
    from: text(fields["from"]),
    to: text(fields["to"]),
    each: fields["each"] === true,
    collect: collectOf(fields["collect"]),
  };
}

export function readResult(result: ResultFrom): { from: string; collect: Collect } {
  if (typeof result === "string") return { from: result, collect: false };
  const fields = (typeof result === "object" && result !== null ? result : {}) as unknown as Record<string, unknown>;
  return { from: text(fields["from"]), collect: collectOf(fields["collect"]) };
}

function collectOf(value: unknown): Collect {
  return value === true || value === "join" || value === "list" ? value : false;
}

/** The condition of an item; null where it has none. */
export function whenOf(item: Item): string | null {
  if (typeof item !== "object" || item === null || Array.isArray(item)) return null;
  const when = (item as { when?: unknown }).when;
  return typeof when === "string" ? when : null;
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
