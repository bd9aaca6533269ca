// Parts of a graph as JSON that can be pasted into another: items of a Walk with their edges, and the nodes, states and
// weights that they need.
import { freshName, readLink, splitReference } from "../names";
import { factsOf } from "../routes";
import { flat, isLoop, kindOf, MAP_NAME, type Entry } from "../tree";
import type { GraphDocument, Item, ItemId, Link, MapItem, Node, State, Weights } from "../types";
import { changeWalk, entryOf, linksOf, own, walkOf, withEdges } from "./parts/document";
import { clamp, outermost, type Place } from "./items";
import { canvasLayout, place as placeAt, walkCanvas } from "./parts/layout";
import { everyPiece, holderOf, indexOf, insert, newPiece, settle, takeApart } from "./parts/pieces";
import { EditRefused, withFields, withKey, withSection, withWalkPart } from "./parts/records";
import { mapItems, mapLink, mapValues, renamedIn, renamedOwner } from "./parts/references";
import { strings } from "../../strings";

export type At = Record<string, [number, number]>;

export interface Clip {
  walkgraph: "clip@1";
  /** Items of a Walk; none where only nodes were copied. */
  items: Item[];
  /** Between the items. */
  edges: Link[];
  /** Merges of ports of the items alone. */
  merges?: Record<string, string[]>;
  /** From elsewhere to the items. */
  incoming: Link[];
  nodes: Record<string, Node>;
  states: Record<string, State>;
  weights: Record<string, Weights>;
  /** Places by item id, as in a Walk of these items alone, or by node. */
  at: At;
}

export interface PasteOptions {
  /** Draw the edges from outside anew, where their sources are there. */
  keepIncoming?: boolean;
  place?: Place;
  /** Where the top left corner goes; without it a little beside where it was. */
  at?: readonly [number, number];
}

const BESIDE = 40;

// ── copy ────────────────────────────────────────────────────────────────────────────────────────

export function copyItems(graph: GraphDocument, walk: string, ids: readonly ItemId[]): Clip {
  const body = takeApart(graph, walk);
  const facts = factsOf(body.walk);
  const tops = outermost(graph, walk, body, ids).map((piece) => entryOf(facts, piece.was!));
  const inside = flat(tops);
  const uses = new Set(inside.flatMap((entry) => (entry.kind === "use" ? entry.name : [])));
  const copied = [...facts.merges.values()].filter(
    ({ sources }) => sources.length > 0 && sources.every((source) => uses.has(splitReference(source)[0])),
  );
  const merges = Object.fromEntries(copied.map(({ name, sources }) => [name, [...sources]]));
  const isIn = (reference: string) => {
    const [owner, name] = splitReference(reference);
    return owner === "@merge" ? Object.hasOwn(merges, name) : uses.has(owner);
  };
  const links = linksOf(body.walk).filter((link) => isIn(readLink(link).to));
  const items = tops.map((entry) => entry.item);
  const forked = inside.flatMap(({ kind, item }) =>
    kind === "fork" ? [(item as { fork: string }).fork, (item as { into: string }).into] : [],
  );
  const nodes = new Set(inside.flatMap((entry) => (entry.kind === "use" ? entry.node : [])));
  const layout = canvasLayout(graph, walkCanvas(walk)).at ?? {};
  const at: At = {};
  pairs(tops, factsOf({ body: items }).tree, (old, made) => {
    if (layout[old.id]) at[made.id] = layout[old.id]!;
  });
  for (const { name } of copied) {
    const place = layout[`merge:${name}`];
    if (place) at[`merge:${name}`] = place;
  }
  return {
    walkgraph: "clip@1",
    items,
    edges: links.filter((link) => isIn(readLink(link).from)),
    ...(copied.length ? { merges } : {}),
    incoming: links.filter((link) => !isIn(readLink(link).from)),
    ...needed(graph, [...nodes], forked),
    at,
  };
}

export function copyNodes(graph: GraphDocument, names: readonly string[]): Clip {
  const layout = canvasLayout(graph, { kind: "components" }).at ?? {};
  const at = Object.fromEntries(names.flatMap((name) => (layout[name] ? [[name, layout[name]]] : []))) as At;
  return { walkgraph: "clip@1", items: [], edges: [], incoming: [], ...needed(graph, names, []), at };
}

function needed(graph: GraphDocument, names: readonly string[], states: readonly string[]) {
  const nodes = picked(graph.nodes, names);
  const bound = Object.values(nodes).flatMap((node) => Object.values(node.states ?? {}));
  const weights = Object.values(nodes).flatMap((node) => node.weights ?? []);
  return { nodes, states: picked(graph.states, [...states, ...bound]), weights: picked(graph.weights, weights) };
}

function picked<T>(record: Record<string, T> | undefined, names: readonly string[]): Record<string, T> {
  return Object.fromEntries(
    [...new Set(names)].flatMap((name) => {
      const value = own(record, name);
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

/** A clip from text, as of the system's clipboard; null for what is none. */
export function readClip(text: string): Clip | null {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    return null;
  }
  if (!isRecord(found) || found["walkgraph"] !== "clip@1") return null;
  const { items, edges, incoming, merges, nodes, states, weights, at } = found;
  const lists = [items, edges, incoming].every((list) => list === undefined || Array.isArray(list));
  const records = [merges, nodes, states, weights, at].every((record) => record === undefined || isRecord(record));
  if (!lists || !records) return null;
  if (!((items ?? []) as unknown[]).every((item) => kindOf(item as Item) !== "unknown")) return null;
  const empty = { items: [], edges: [], incoming: [], nodes: {}, states: {}, weights: {}, at: {} };
  return { ...empty, ...found } as unknown as Clip;
}

// ── paste ───────────────────────────────────────────────────────────────────────────────────────

/** Put a clip's items into a Walk. Uses and loops get fresh names; a node is shared with one of the same component. */
export function pasteItems(
  graph: GraphDocument,
  walk: string,
  clip: Clip,
  options: PasteOptions = {},
): { graph: GraphDocument; ids: ItemId[] } {
  if (!clip.items.length) throw new EditRefused(strings.document.whatWasCopiedHoldsNo);
  const { graph: made, nodes, states } = withNeeded(graph, clip, true);
  const facts = factsOf(walkOf(made, walk));
  const own = factsOf({ body: clip.items });
  const names = freshUses(own.list, facts.uses.keys(), nodes);
  const loops = freshLoops(own.list, facts.list);
  const merged = freshMerges(clip, facts.merges.keys());
  const fresh: Fresh = { nodes, states, uses: names, loops, merges: merged };
  const items = mapItems(clip.items, (item) => pastedItem(item, fresh));

  const renamed = (link: Link): Link => mapLink(link, (end, side) => pastedEnd(end, side, fresh));
  const incoming = options.keepIncoming ? clip.incoming.map(renamed) : [];
  const putAt = (place: Place) => {
    const body = takeApart(made, walk);
    const holder = holderOf(body, place.parent);
    const pieces = items.map((item) => newPiece(item));
    insert(holder, clamp(place.index, holder), ...pieces);
    const settled = settle(made, walk, body);
    return { pieces, settled, kept: incoming.filter(reaches(settled.graph, walk)) };
  };
  const wished = putAt(options.place ?? { parent: null });
  // Before their sources the items would lose wires: behind them, if that keeps more.
  const behind =
    wished.kept.length < incoming.length ? putAt(behindSources(made, walk, incoming, options.place)) : wished;
  const { pieces, settled, kept } = behind.kept.length > wished.kept.length ? behind : wished;

  const links = [...clip.edges.map(renamed), ...kept];
  const edged = links.length
    ? changeWalk(settled.graph, walk, (changed) => withEdges(changed, [...linksOf(changed), ...links]))
    : settled.graph;
  const more = Object.entries(clip.merges ?? {}).map(([name, sources]) => [
    merged.get(name)!,
    sources.map((source) => pastedEnd(source, "source", fresh)),
  ]);
  const joined = more.length
    ? changeWalk(edged, walk, (changed) =>
        withWalkPart(changed, "merges", { ...changed.merges, ...Object.fromEntries(more) }),
      )
    : edged;

  const places: At = {};
  const ids = new Map(
    pieces.flatMap((piece) => [piece, ...everyPiece(piece)]).map((piece, index) => [index, settled.idOf(piece)]),
  );
  own.list.forEach((entry, index) => {
    const at = clip.at[entry.id];
    if (at) places[ids.get(index)!] = at;
  });
  for (const [name, made] of merged)
    if (clip.at[`merge:${name}`]) places[`merge:${made}`] = clip.at[`merge:${name}`]!;
  const placed = placeAt(joined, walkCanvas(walk), shiftedTo(places, options.at));
  return { graph: placed, ids: pieces.map((piece) => settled.idOf(piece)) };
}

/** Put a clip's nodes among the components, each as a node of its own. */
export function pasteNodes(
  graph: GraphDocument,
  clip: Clip,
  options: { at?: readonly [number, number] } = {},
): { graph: GraphDocument; names: string[] } {
  const { graph: made, nodes } = withNeeded(graph, clip, false);
  const places = Object.fromEntries(
    Object.entries(clip.at).flatMap(([name, at]) => (nodes.has(name) ? [[nodes.get(name)!, at]] : [])),
  ) as At;
  const placed = placeAt(made, { kind: "components" }, clip.items.length ? {} : shiftedTo(places, options.at));
  return { graph: placed, names: [...nodes.values()] };
}

/** The graph with what the clip needs, and what it is called there. `share`: a node like one that is there is that one. */
function withNeeded(graph: GraphDocument, clip: Clip, share: boolean) {
  const weights = merged(graph.weights, clip.weights, alike);
  const states = merged(graph.states, clip.states, alike);
  const translated = Object.fromEntries(
    Object.entries(clip.nodes).map(([name, node]) => {
      const bound = Object.entries(node.states ?? {}).map(([slot, state]) => [
        slot,
        states.names.get(state) ?? state,
      ]);
      const fields = {
        ...(node.weights ? { weights: weights.names.get(node.weights) ?? node.weights } : {}),
        ...(bound.length ? { states: Object.fromEntries(bound) as Record<string, string> } : {}),
      };
      return [name, withFields(node, fields)];
    }),
  );
  const same = (a: Node, b: Node) => share && a.component === b.component;
  const nodes = merged(graph.nodes, translated, same);
  const parts = [
    ["weights", weights.record],
    ["states", states.record],
    ["nodes", nodes.record],
  ] as const;
  const made = parts.reduce(
    (changed, [key, record]) => (Object.keys(record).length ? withSection(changed, key, record) : changed),
    graph,
  );
  return { graph: made, nodes: nodes.names, states: states.names };
}

function merged<T>(record: Record<string, T> | undefined, more: Record<string, T>, same: (a: T, b: T) => boolean) {
  let made: Record<string, T> = record ?? {};
  const names = new Map<string, string>();
  for (const [name, value] of Object.entries(more)) {
    const there = own(made, name);
    const called =
      there === undefined ? freshName(name, []) : same(there, value) ? name : freshName(name, Object.keys(made));
    names.set(name, called);
    if (own(made, called) === undefined) made = { ...made, [called]: value };
  }
  return { record: made, names };
}

function alike(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function freshUses(
  list: readonly Entry[],
  taken: Iterable<string>,
  nodes: ReadonlyMap<string, string>,
): Map<string, string> {
  const used = new Set(taken);
  const names = new Map<string, string>();
  for (const entry of list) {
    if (entry.kind !== "use" || names.has(entry.name)) continue;
    const base = entry.name === entry.node ? (nodes.get(entry.node) ?? entry.node) : entry.name;
    const name = freshName(base, used);
    used.add(name);
    names.set(entry.name, name);
  }
  return names;
}

function freshLoops(list: readonly Entry[], there: readonly Entry[]): Map<string, string> {
  const used = new Set(there.flatMap((entry) => (isLoop(entry.kind) ? entry.name : [])));
  const names = new Map<string, string>();
  for (const entry of list) {
    if (!isLoop(entry.kind) || names.has(entry.name)) continue;
    const name = freshName(entry.name, used);
    used.add(name);
    names.set(entry.name, name);
  }
  return names;
}

function freshMerges(clip: Clip, there: Iterable<string>): Map<string, string> {
  const used = new Set(there);
  const names = new Map<string, string>();
  for (const name of Object.keys(clip.merges ?? {})) {
    const made = freshName(name, used);
    used.add(made);
    names.set(name, made);
  }
  return names;
}

/** The names of the parts of a clip where they are pasted. */
interface Fresh {
  nodes: ReadonlyMap<string, string>;
  states: ReadonlyMap<string, string>;
  uses: ReadonlyMap<string, string>;
  loops: ReadonlyMap<string, string>;
  merges: ReadonlyMap<string, string>;
}

function pastedItem(item: Item, fresh: Fresh): Item {
  const { nodes, states, uses, loops } = fresh;
  const kind = kindOf(item);
  let made = item;
  if (kind === "use") {
    const old = typeof item === "string" ? { use: item } : (item as { use: string; as?: string | null });
    const node = nodes.get(old.use) ?? old.use;
    const name = uses.get(old.as ?? old.use)!;
    if (typeof item === "string") made = name === node ? node : { use: node, as: name };
    else made = withFields(withKey(item as object, "use", node), { as: name === node ? null : name }) as Item;
  }
  if (kind === "fork")
    for (const key of ["fork", "into"] as const) {
      const state = (item as unknown as Record<string, string>)[key]!;
      made = withKey(made as object, key, states.get(state) ?? state) as Item;
    }
  if (kind === "loop") {
    const { loop } = item as { loop: string };
    made = withKey(made as object, "loop", loops.get(loop) ?? loop) as Item;
  }
  if (kind === "map") {
    const name = (item as MapItem).as || MAP_NAME;
    const fresh = loops.get(name) ?? name;
    if (fresh !== name) made = withFields(made as object, { as: fresh }) as Item;
  }
  return renamedAll(
    mapValues(made, (reference) => pastedEnd(reference, "source", fresh)),
    loops,
  );
}

/** All loops at once, so that two names that change places stay apart. */
function renamedAll(item: Item, loops: ReadonlyMap<string, string>): Item {
  const changed = [...loops].filter(([from, to]) => from !== to);
  const away = changed.reduce((made, [from], index) => renamedIn(made, from, `wg${index}x${from}`), item);
  return changed.reduce((made, [from, to], index) => renamedIn(made, `wg${index}x${from}`, to), away);
}

function pastedEnd(reference: string, side: "source" | "target", { uses, loops, merges }: Fresh): string {
  const [owner, name] = splitReference(reference);
  if (owner === "@merge" && side === "source") return `@merge.${merges.get(name) ?? name}`;
  if (owner === "@loop" && side === "source") return `@loop.${loops.get(name) ?? name}`;
  return uses.has(owner) ? renamedOwner(reference, owner, uses.get(owner)!) : reference;
}

/** The first position in a container behind all that the edges come from. */
function behindSources(graph: GraphDocument, walk: string, links: readonly Link[], wish: Place | undefined): Place {
  const parent = wish?.parent ?? null;
  const { uses } = factsOf(walkOf(graph, walk));
  const body = takeApart(graph, walk);
  const holder = holderOf(body, parent);
  const behind = links.map((link) => {
    const entry = uses.get(splitReference(readLink(link).from)[0]);
    let piece = entry && body.byId.get(entry.id);
    while (piece && piece.parent !== holder) piece = piece.parent ?? undefined;
    return piece ? indexOf(piece) + 1 : 0;
  });
  return { parent, index: Math.max(clamp(wish?.index, holder), ...behind) };
}

/** True if the source of an edge exists, before its target or carried to it. */
function reaches(graph: GraphDocument, walk: string): (link: Link) => boolean {
  const body = walkOf(graph, walk);
  return (link) => {
    const [route] = factsOf({ ...body, edges: [link] }).routes;
    if (!route?.target.entry) return false;
    const { kind, name, entry, place } = route.source;
    if (kind === "in") return own(body.inputs, name) !== undefined;
    if (kind === "stream") return (graph.streams ?? []).some((stream) => stream.name === name);
    if (kind === "loop")
      return name === "index" ? route.target.entry.loops.length > 0 : route.target.entry.loops.includes(name);
    return (entry ?? place) !== null && (!route.backward || route.carried);
  };
}

function shiftedTo(places: At, corner: readonly [number, number] | undefined): At {
  const all = Object.values(places);
  if (!all.length) return {};
  const left = Math.min(...all.map(([x]) => x));
  const top = Math.min(...all.map(([, y]) => y));
  const [dx, dy] = corner ? [corner[0] - left, corner[1] - top] : [BESIDE, BESIDE];
  return Object.fromEntries(Object.entries(places).map(([key, [x, y]]) => [key, [x + dx, y + dy]]));
}

function pairs(before: readonly Entry[], after: readonly Entry[], visit: (old: Entry, made: Entry) => void): void {
  before.forEach((old, index) => {
    visit(old, after[index]!);
    pairs(old.children, after[index]!.children, visit);
  });
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
