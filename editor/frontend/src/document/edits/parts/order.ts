// Constraints on the order of items: a value is made before it is read, and items that share a state run in turn.
import { meet, sideBySide, type Facts } from "../../routes";
import { flat, type Entry } from "../../tree";
import type { Fork, GraphDocument, ItemId } from "../../types";
import { strings } from "../../../strings";

export interface Shift {
  parent: ItemId | null;
  ids: ItemId[];
  /** Position in the list as it is. */
  index: number;
}

/**
 * The items of a list of which each needs others before it: index -> indices, all smaller. `states`: also those that
 * share a state.
 */
export function needsOf(
  graph: GraphDocument,
  facts: Facts,
  siblings: readonly Entry[],
  { states = true } = {},
): Set<number>[] {
  const needs = siblings.map(() => new Set<number>());
  const place = new Map<Entry, number>();
  siblings.forEach((sibling, index) => flat([sibling]).forEach((entry) => place.set(entry, index)));
  const need = (later: number | undefined, earlier: number | undefined): void => {
    if (later !== undefined && earlier !== undefined && earlier < later) needs[later]!.add(earlier);
  };
  for (const { source, target } of [...facts.routes, ...facts.heads])
    if (source.place && target.place) need(place.get(target.place), place.get(source.place));
  if (!states) return needs;
  const touched = new Map<string, number[]>();
  for (const [entry, index] of place)
    for (const state of statesOf(graph, entry)) touched.set(state, [...(touched.get(state) ?? []), index]);
  for (const indices of touched.values())
    for (const later of indices) for (const earlier of indices) need(later, earlier);
  return needs;
}

/** States that a use or a fork touches. */
export function statesOf(graph: GraphDocument, entry: Entry): string[] {
  if (entry.kind === "fork") return [(entry.item as Fork).fork, (entry.item as Fork).into];
  const states = entry.kind === "use" ? graph.nodes?.[entry.node]?.states : undefined;
  return states ? Object.values(states) : [];
}

/** `seeds` and all that need one of them, however indirectly. */
export function dependents(needs: readonly ReadonlySet<number>[], seeds: Iterable<number>): Set<number> {
  const found = new Set(seeds);
  needs.forEach((before, index) => {
    if ([...before].some((each) => found.has(each))) found.add(index);
  });
  return found;
}

/** `seeds` and all that they need. */
export function ancestors(needs: readonly ReadonlySet<number>[], seeds: Iterable<number>): Set<number> {
  const found = new Set(seeds);
  for (let index = needs.length - 1; index >= 0; index -= 1)
    if (found.has(index)) for (const each of needs[index]!) found.add(each);
  return found;
}

/** How to put `target` after `source`, which stands behind it; or why that can't be. */
export function behind(graph: GraphDocument, facts: Facts, target: Entry, source: Entry): Shift | string {
  return shift(graph, facts, target, source, "behind");
}

/** How to put `target` before `source`, which stands before it; or why that can't be. */
export function ahead(graph: GraphDocument, facts: Facts, target: Entry, source: Entry): Shift | string {
  return shift(graph, facts, target, source, "ahead");
}

function shift(
  graph: GraphDocument,
  facts: Facts,
  target: Entry,
  source: Entry,
  side: "behind" | "ahead",
): Shift | string {
  if (target === source) return strings.document.cantComeItself(target.name, side === "behind" ? "after" : "before");
  if (sideBySide(target, source)) return sideBySideReason(source, target);
  const { parent, a, b } = meet(target, source);
  const siblings = parent ? parent.children : facts.tree;
  const needs = needsOf(graph, facts, siblings);
  const [from, to] = [siblings.indexOf(a), siblings.indexOf(b)];
  const moved = side === "behind" ? dependents(needs, [from]) : ancestors(needs, [from]);
  if (moved.has(to)) return tied(graph, a, b, source, target);
  const between = [...moved].filter((index) => (side === "behind" ? index < to : index > to)).sort((x, y) => x - y);
  const ids = between.map((index) => siblings[index]!.id);
  return { parent: parent?.id ?? null, ids, index: side === "behind" ? to + 1 : to };
}

function tied(graph: GraphDocument, a: Entry, b: Entry, source: Entry, target: Entry): string {
  const here = new Set(flat([a]).flatMap((entry) => statesOf(graph, entry)));
  const shared = flat([b])
    .flatMap((entry) => statesOf(graph, entry))
    .find((state) => here.has(state));
  const [first, second] = source.order < target.order ? [source, target] : [target, source];
  if (shared !== undefined) return strings.document.andKeepStateSoTheir(first.name, second.name, shared);
  return strings.document.needsWhatComes(second.name, first.name);
}

export function sideBySideReason(source: Entry, target: Entry): string {
  return strings.document.andRunSideBySide(source.name, target.name);
}
