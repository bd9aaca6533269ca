// The route of every edge of a Walk: loops that it leaves, enters, or that carry it back. The rules are those of
// `walkgraph.graph.structure`; goldens made there are compared in the tests. Pure; facts of a Walk are kept by object.
import { readLink, readResult, splitReference, type PlainLink } from "./names";
import { entries, flat, type Entry } from "./tree";
import type { GraphDocument, ItemId, Pointer, Walk } from "./types";
import { perObject } from "./perObject";

export type EndKind = "use" | "in" | "loop" | "stream" | "out" | "result";

export interface End {
  kind: EndKind;
  /** The use, Walk input, loop, stream, output or result. */
  name: string;
  /** The port of the use. */
  port: string;
  /** The use; null if the body has no such use. */
  entry: Entry | null;
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
}

/** Derived facts of a Walk. */
export const factsOf = perObject(derive);

/** A Walk's edges, classified; empty where there is no such Walk. */
export function routesOf(graph: GraphDocument, walk: string): readonly Route[] {
  const found = graph.walks?.[walk];
  return found ? factsOf(found).routes : [];
}

/** The target of a reference. One with a meaningless `@` word is read as a missing use. */
export function endOf(reference: string, uses: ReadonlyMap<string, Entry>, side: "source" | "target"): End {
  const [owner, name] = splitReference(reference);
  if (side === "target" && owner === "@out") return { kind: "out", name, port: "", entry: null };
  if (side === "source") {
    if (owner === "@in") return { kind: "in", name, port: "", entry: null };
    if (owner === "@loop") return { kind: "loop", name, port: "", entry: null };
    if (owner === "@stream") return { kind: "stream", name, port: "", entry: null };
  }
  return { kind: "use", name: owner, port: name, entry: uses.get(owner) ?? null };
}

/** How an edge would go between these ends, before `first` is known. */
export function routeOf(uses: ReadonlyMap<string, Entry>, link: PlainLink, index: number, pointer: Pointer): Route {
  const source = endOf(link.from, uses, "source");
  const target = endOf(link.to, uses, "target");
  const there = target.entry?.loops ?? [];
  const here = sourceLoops(source, there);
  const common = commonOf(here, there);
  const backward = source.entry !== null && target.entry !== null && target.entry.order <= source.entry.order;
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
  const routes = withFirst(links.map((link, index) => routeOf(uses, readLink(link), index, `/edges/${index}`)));
  const results = Object.entries(walk.results ?? {}).map(([name, result]): Route => {
    const { from, collect } = readResult(result);
    const route = routeOf(uses, { from, to: `@result.${name}`, each: false, collect }, -1, `/results/${name}`);
    const left = route.source.entry?.loops ?? [];
    const leave = !left.length ? "none" : collect ? "collect" : "last";
    return { ...route, target: { kind: "result", name, port: "", entry: null }, common: 0, left, leave };
  });
  const feeds = new Map<string, Route[]>();
  for (const route of routes) {
    if (route.target.kind !== "use") continue;
    const into = feeds.get(route.to);
    if (into) into.push(route);
    else feeds.set(route.to, [route]);
  }
  const byId = new Map(list.map((entry) => [entry.id, entry]));
  return { tree, list, byId, uses, routes, results, feeds };
}

function sourceLoops(source: End, targetLoops: readonly string[]): readonly string[] {
  if (source.kind === "use") return source.entry?.loops ?? [];
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
