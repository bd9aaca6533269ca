// The route of every edge of a Walk: loops that it leaves, enters, or that carry it back. The rules are those of
// `walkgraph.graph.structure`; goldens made there are compared in the tests. Pure; facts of a Walk are kept by object.
import { readLink, readResult, splitReference, type PlainLink } from "./names";
import { join } from "./pointer";
import { entries, flat, hasHead, headOf, lastOrder, type Entry } from "./tree";
import type { GraphDocument, ItemId, Pointer, Walk } from "./types";
import { perObject } from "./perObject";

export type EndKind = "use" | "in" | "loop" | "stream" | "merge" | "out" | "result" | "choice" | "map";

export interface End {
  kind: EndKind;
  /** The use, Walk input, loop, stream, merge, output or result; of a choice or a map its id. */
  name: string;
  /** The port of the use. */
  port: string;
  /** The use; null if the body has no such use. */
  entry: Entry | null;
  /** Where in the body the value is: the use, the choice, the map, or the choice whose branches a merge joins. */
  place: Entry | null;
}

/** The things that references of a Walk can name. */
export interface Named {
  uses: ReadonlyMap<string, Entry>;
  merges: ReadonlyMap<string, Merge>;
}

/** One value from whichever branch of a choice was taken. */
export interface Merge {
  name: string;
  /** Ports of uses in different branches. */
  sources: readonly string[];
  /** The innermost choice around all of them; null where none is. */
  choice: Entry | null;
  /** In the Walk: `/merges/picture`. */
  pointer: Pointer;
}

export interface Route extends PlainLink {
  /** Position in the Walk's edges; -1 for a result. */
  index: number;
  source: End;
  target: End;
  /** How many loops hold both ends. */
  common: number;
  /** The target is not after the source in the body. */
  backward: boolean;
  /** The innermost common loop takes the value to its next iteration. */
  carried: boolean;
  leave: "none" | "last" | "each" | "collect";
  enter: "none" | "held" | "first" | "each";
  /** The loops left, outermost first. */
  left: readonly string[];
  entered: readonly string[];
  /** In the Walk: `/edges/3`. */
  pointer: Pointer;
}

export interface Facts {
  tree: readonly Entry[];
  /** All entries, parents first, in program order. */
  list: readonly Entry[];
  byId: ReadonlyMap<ItemId, Entry>;
  /** By name; of two with one name the first. */
  uses: ReadonlyMap<string, Entry>;
  /** One per edge, in the author's order. */
  routes: readonly Route[];
  results: readonly Route[];
  /** `use.port` -> the routes into it. */
  feeds: ReadonlyMap<string, readonly Route[]>;
  merges: ReadonlyMap<string, Merge>;
  /** From each merge's sources to it; `index` is the position in its list. */
  merging: readonly Route[];
  /** From the value of each choice to the choice, and from the list of each map to the map. */
  heads: readonly Route[];
  /** The maps by their names; of two with one name the first. */
  maps: ReadonlyMap<string, Entry>;
}

/** Derived facts of a Walk. */
export const factsOf = perObject(derive);

/** A Walk's edges, classified; empty where there is no such Walk. */
export function routesOf(graph: GraphDocument, walk: string): readonly Route[] {
  const found = graph.walks?.[walk];
  return found ? factsOf(found).routes : [];
}

/** The target of a reference. One with a meaningless `@` word is read as a missing use. */
export function endOf(reference: string, { uses, merges }: Named, side: "source" | "target"): End {
  const [owner, name] = splitReference(reference);
  const bare = (kind: EndKind, place: Entry | null = null): End => ({ kind, name, port: "", entry: null, place });
  if (side === "target" && owner === "@out") return bare("out");
  if (side === "source") {
    if (owner === "@in") return bare("in");
    if (owner === "@loop") return bare("loop");
    if (owner === "@stream") return bare("stream");
    if (owner === "@merge") return bare("merge", merges.get(name)?.choice);
  }
  const entry = uses.get(owner) ?? null;
  return { kind: "use", name: owner, port: name, entry, place: entry };
}

/** How an edge would go between these ends, before `first` is known. */
export function routeOf(named: Named, link: PlainLink, index: number, pointer: Pointer): Route {
  return between(endOf(link.from, named, "source"), endOf(link.to, named, "target"), link, index, pointer);
}

function between(source: End, target: End, link: PlainLink, index: number, pointer: Pointer): Route {
  const there = target.place?.loops ?? [];
  const here = sourceLoops(source, there);
  const common = commonOf(here, there);
  const backward = source.place !== null && target.place !== null && target.place.order <= lastOrder(source.place);
  const left = here.slice(common);
  const entered = there.slice(common);
  const leave = !left.length
    ? "none"
    : link.collect
      ? "collect"
      : link.each && target.kind === "out"
        ? "each"
        : "last";
  const enter = !entered.length ? "none" : link.each ? "each" : "held";
  const carried = backward && common > 0;
  return { index, ...link, source, target, common, backward, carried, leave, enter, left, entered, pointer };
}

/** True if two entries are in different branches of one parallel. */
export function sideBySide(a: Entry, b: Entry): boolean {
  if (a === b) return false;
  const meeting = meet(a, b);
  return meeting.parent?.kind === "parallel" && meeting.a !== meeting.b;
}

/** True if two entries are in different branches of one choice: at most one of them runs. */
export function exclusive(a: Entry, b: Entry): boolean {
  if (a === b) return false;
  const meeting = meet(a, b);
  return meeting.parent?.kind === "choose" && meeting.a !== meeting.b;
}

/** True if an entry is inside another, or is it. */
export function isInside(entry: Entry, holder: Entry): boolean {
  for (let at: Entry | null = entry; at; at = at.parent) if (at === holder) return true;
  return false;
}

/** The list that holds both, and the items of it that they stand in. */
export function meet(a: Entry, b: Entry): { parent: Entry | null; a: Entry; b: Entry } {
  const above = ancestry(a);
  const beside = ancestry(b);
  let depth = 0;
  while (depth < above.length - 1 && depth < beside.length - 1 && above[depth] === beside[depth]) depth += 1;
  return { parent: above[depth - 1] ?? null, a: above[depth]!, b: beside[depth]! };
}

/** From the top of the body down to the entry itself. */
export function ancestry(entry: Entry): Entry[] {
  const found: Entry[] = [];
  for (let at: Entry | null = entry; at; at = at.parent) found.unshift(at);
  return found;
}

function derive(walk: Walk): Facts {
  const tree = entries(walk);
  const list = flat(tree);
  const uses = new Map<string, Entry>();
  for (const entry of list) if (entry.kind === "use" && !uses.has(entry.name)) uses.set(entry.name, entry);
  const links = Array.isArray(walk.edges) ? walk.edges : [];
  const merges = mergesOf(walk, uses);
  const named = { uses, merges };
  const routes = withFirst(links.map((link, index) => routeOf(named, readLink(link), index, `/edges/${index}`)));
  const results = Object.entries(walk.results ?? {}).map(([name, result]): Route => {
    const { from, collect } = readResult(result);
    const route = routeOf(named, { from, to: `@result.${name}`, each: false, collect }, -1, `/results/${name}`);
    const left = route.source.place?.loops ?? [];
    const leave = !left.length ? "none" : collect ? "collect" : "last";
    return { ...route, target: { kind: "result", name, port: "", entry: null, place: null }, common: 0, left, leave };
  });
  const feeds = new Map<string, Route[]>();
  for (const route of routes) {
    if (route.target.kind !== "use") continue;
    const into = feeds.get(route.to);
    if (into) into.push(route);
    else feeds.set(route.to, [route]);
  }
  const byId = new Map(list.map((entry) => [entry.id, entry]));
  const merging = [...merges.values()].flatMap((merge) =>
    merge.sources.map((from, index): Route => {
      const target: End = { kind: "merge", name: merge.name, port: "", entry: null, place: null };
      const link = { from, to: `@merge.${merge.name}`, each: false, collect: false };
      return between(endOf(from, named, "source"), target, link, index, `${merge.pointer}/${index}`);
    }),
  );
  const heads = list.flatMap((entry): Route[] => {
    const from = headOf(entry.item);
    if (!hasHead(entry.kind) || !from) return [];
    const kind = entry.kind === "map" ? "map" : "choice";
    const target: End = { kind, name: entry.id, port: "", entry: null, place: entry };
    const link = { from, to: headRef(entry.id), each: false, collect: false };
    return [between(endOf(from, named, "source"), target, link, -1, `${entry.pointer}/${entry.kind}`)];
  });
  const maps = new Map<string, Entry>();
  for (const entry of list) if (entry.kind === "map" && !maps.has(entry.name)) maps.set(entry.name, entry);
  return { tree, list, byId, uses, routes, results, feeds, merges, merging, heads, maps };
}

/** The end of a wire to the head of a choice or a map ends at. */
export function headRef(id: ItemId): string {
  return `${id.startsWith("map:") ? "@map" : "@choice"}.${id}`;
}

/** The choice or map whose head a reference names; null for any other reference. */
export function headId(reference: string): ItemId | null {
  const [owner, id] = splitReference(reference);
  return owner === "@map" || owner === "@choice" ? id : null;
}

/** The map among the loops that a route leaves; null where it leaves none. */
export function mapLeft({ maps }: Facts, { left }: Pick<Route, "left">): string | null {
  return left.find((loop) => maps.has(loop)) ?? null;
}

/** The map that would have to carry a route's value to the next item; null where a loop does. */
export function mapCarrying({ maps }: Facts, { common, source, target }: Route): string | null {
  const loop = (target.place ?? source.place)?.loops[common - 1];
  return loop !== undefined && maps.has(loop) ? loop : null;
}

function mergesOf(walk: Walk, uses: ReadonlyMap<string, Entry>): Map<string, Merge> {
  const found = new Map<string, Merge>();
  for (const [name, listed] of Object.entries(walk.merges ?? {})) {
    const sources = Array.isArray(listed) ? listed.filter((source) => typeof source === "string") : [];
    const places = sources.flatMap((source) => uses.get(splitReference(source)[0]) ?? []);
    found.set(name, { name, sources, choice: choiceAround(places), pointer: join("merges", name) });
  }
  return found;
}

/** The innermost choice that entries of different branches stand in; of a single entry the one around it. */
export function choiceAround(places: readonly Entry[]): Entry | null {
  const [first, ...others] = places;
  if (!first) return null;
  return (
    ancestry(first).findLast(
      (entry) => entry.kind === "choose" && entry !== first && others.every((other) => isInside(other, entry)),
    ) ?? null
  );
}

function sourceLoops(source: End, targetLoops: readonly string[]): readonly string[] {
  if (source.kind === "use" || source.kind === "merge") return source.place?.loops ?? [];
  if (source.kind !== "loop") return [];
  if (source.name === "index") return targetLoops;
  return targetLoops.slice(0, targetLoops.indexOf(source.name) + 1);
}

function commonOf(a: readonly string[], b: readonly string[]): number {
  let count = 0;
  while (count < a.length && count < b.length && a[count] === b[count]) count += 1;
  return count;
}

/** Held values become first values where the port also has an edge carried at one of the loops that they enter. */
function withFirst(routes: readonly Route[]): readonly Route[] {
  const carried = new Map<string, number>();
  for (const route of routes)
    if (route.carried) carried.set(route.to, Math.max(carried.get(route.to) ?? 0, route.common));
  return routes.map((route) =>
    route.enter === "held" && (carried.get(route.to) ?? 0) > route.common ? { ...route, enter: "first" } : route,
  );
}
