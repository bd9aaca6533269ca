// References of a Walk followed through a change of names: in edges, results, `until`, wires' reroutes and the records
// of bypassed items.
import { splitReference, whenOf } from "../../names";
import { childrenOf, hasHead, kindOf, withChildren } from "../../tree";
import type { CanvasLayout, GraphDocument, Item, Link, ResultFrom, Walk } from "../../types";
import { changeWalk, linksOf, withEdges } from "./document";
import { changeLayout, rewired, walkCanvas } from "./layout";
import { mapped, mappedList, withKey, withPart, withWalkPart } from "./records";
import { renameLoop } from "../../expressions";

export type Change = (reference: string) => string;
export type Side = "source" | "target";
export type ChangeEnd = (reference: string, side: Side) => string;

export function mapLink(link: Link, change: ChangeEnd): Link {
  if (Array.isArray(link))
    return mappedList(link, (end, index) =>
      typeof end === "string" && index < 2 ? change(end, index ? "target" : "source") : end,
    );
  let made = link;
  for (const [key, side] of [
    ["from", "source"],
    ["to", "target"],
  ] as const)
    if (typeof link?.[key] === "string") made = withKey(made, key, change(link[key], side));
  return made;
}

export function mapResult(result: ResultFrom, change: Change): ResultFrom {
  if (typeof result === "string") return change(result);
  return typeof result?.from === "string" ? withKey(result, "from", change(result.from)) : result;
}

/** Items changed from the inside out; the same list when none is. */
export function mapItems(items: readonly Item[], change: (item: Item) => Item): Item[] {
  return mappedList(items, (item) => {
    const before = childrenOf(item);
    const inside = mapItems(before, change);
    if (inside === before) return change(item);
    return change(withChildren(item, inside));
  });
}

/** Every reference of a Walk to a port of its uses, or to its ports, changed. */
export function mapReferences(graph: GraphDocument, name: string, change: ChangeEnd): GraphDocument {
  const source: Change = (reference) => change(reference, "source");
  const made = changeWalk(graph, name, (walk) => {
    const edges = mappedList(linksOf(walk), (link) => mapLink(link, change));
    const body = Array.isArray(walk.body) ? mapItems(walk.body, (item) => mapValues(item, source)) : walk.body;
    const results = walk.results && mapped(walk.results, (result) => mapResult(result, source));
    const withResults = results === walk.results ? walk : withWalkPart(walk, "results", results);
    return withWalkPart(withMerges(withEdges(withResults, edges), source), "body", body);
  });
  return changeLayout(made, walkCanvas(name), (layout) => mapRecords(rewired(layout, change), change));
}

/** A use of a Walk under another name, wherever the Walk refers to it. */
export function renameUse(graph: GraphDocument, walk: string, from: string, to: string): GraphDocument {
  return from === to ? graph : mapReferences(graph, walk, (reference) => renamedOwner(reference, from, to));
}

export function renamedOwner(reference: string, from: string, to: string): string {
  const [owner, port] = splitReference(reference);
  return owner === from ? `${to}.${port}` : reference;
}

/** A loop's index under another name, in all expressions of a Walk and in edges from it. */
export function renameLoopIndex(graph: GraphDocument, name: string, from: string, to: string): GraphDocument {
  const made = mapReferences(graph, name, (reference, side) =>
    side === "source" && reference === `@loop.${from}` ? `@loop.${to}` : reference,
  );
  return changeWalk(made, name, (walk) =>
    Array.isArray(walk.body)
      ? withWalkPart(
          walk,
          "body",
          mapItems(walk.body, (item) => renamedIn(item, from, to)),
        )
      : walk,
  );
}

/** The expressions of one item, not of those inside, with a loop under another name. */
export function renamedIn(item: Item, from: string, to: string): Item {
  if (typeof item !== "object" || item === null || Array.isArray(item)) return item;
  const when = whenOf(item);
  const renamed: object = when === null ? item : withKey(item, "when", renameLoop(when, from, to));
  return COUNTS.reduce((made, key) => {
    const count = (made as Record<string, unknown>)[key];
    return typeof count === "string" ? withKey(made, key, renameLoop(count, from, to)) : made;
  }, renamed) as Item;
}

/** Expressions of loops and maps. */
const COUNTS = ["times", "bound", "width"];

/** Change what ends a loop, what a choice goes by, or the list of a map. */
export function mapValues(item: Item, change: Change): Item {
  const kind = kindOf(item);
  const key = kind === "loop" ? "until" : hasHead(kind) ? kind : null;
  const value = key === null ? undefined : (item as unknown as Record<string, unknown>)[key];
  return typeof value === "string" && value ? (withKey(item as object, key!, change(value)) as Item) : item;
}

function withMerges(walk: Walk, change: Change): Walk {
  if (!walk.merges) return walk;
  const made = mapped(walk.merges, (sources) =>
    Array.isArray(sources)
      ? mappedList(sources, (source) => (typeof source === "string" ? change(source) : source))
      : sources,
  );
  return made === walk.merges ? walk : withWalkPart(walk, "merges", made);
}

/** The item before it was bypassed: see `mute.ts`. */
function mapRecords(layout: CanvasLayout, change: ChangeEnd): CanvasLayout {
  if (!layout.muted) return layout;
  const muted = mapped(layout.muted, (record) => {
    if (typeof record !== "object" || record === null) return record;
    const { links, results } = record as {
      links?: { was: Link; now: Link[] }[];
      results?: Record<string, ResultFrom[]>;
    };
    let made: object = record;
    if (links) {
      const changed = mappedList(links, (each) => {
        const now = mappedList(each.now, (link) => mapLink(link, change));
        return withKey(withKey(each, "was", mapLink(each.was, change)), "now", now);
      });
      made = withKey(made, "links", changed);
    }
    if (results)
      made = withKey(
        made,
        "results",
        mapped(results, (pair) => mappedList(pair, (result) => mapResult(result, (end) => change(end, "source")))),
      );
    return made;
  });
  return withPart(layout, "muted", muted);
}
