// Items of a Walk's body: put in, taken out, moved, wrapped, changed.
import type { Catalogue } from "../../messages/answers";
import { canBeNamed, freshName, splitReference, whenOf } from "../names";
import { both, readsLoop, renameLoop } from "../expressions";
import { factsOf, type Facts } from "../routes";
import { flat, isBranch, isLoop, MAP_NAME, type Entry } from "../tree";
import type { GraphDocument, Item, ItemId } from "../types";
import { bridged } from "./parts/bridge";
import { entryOf, freeName, nodeOf, own, walkOf } from "./parts/document";
import { withoutReferences } from "./parts/merges";
import {
  detach,
  holderOf,
  indexOf,
  insert,
  isWithin,
  newPiece,
  pieceOf,
  pruneList,
  settle,
  takeApart,
} from "./parts/pieces";
import type { Body, Piece } from "./parts/pieces";
import { EditRefused, mapped, withFields, withKey, withSection } from "./parts/records";
import { reflagged } from "./parts/flags";
import { renameLoopIndex, renameUse } from "./parts/references";
import { renameStreamUse } from "./streams";
import { strings } from "../../strings";

/** Where in a Walk: in a container, or at the top; before the item that is at `index` now, or at the end. */
export interface Place {
  parent: ItemId | null;
  index?: number;
}

export interface LoopFields {
  loop?: string;
  times?: string;
  until?: string | null;
  drop_last?: boolean;
  when?: string | null;
}

export interface MapFields {
  map?: string;
  as?: string;
  bound?: string;
  width?: string;
  when?: string | null;
}

export interface ItemFields {
  when?: string | null;
  as?: string | null;
  times?: string;
  bound?: string;
  width?: string | null;
  until?: string | null;
  drop_last?: boolean | null;
  loop?: string;
  fork?: string;
  into?: string;
}

export type WrapKind = "loop" | "map" | "parallel" | "sequence" | "choose";

// ── put in ──────────────────────────────────────────────────────────────────────────────────────

/** A use of a node; under a fresh name where the Walk has one of the node's name already. */
export function insertUse(graph: GraphDocument, walk: string, node: string, place: Place, as?: string): WithId {
  nodeOf(graph, node);
  const taken = factsOf(walkOf(graph, walk)).uses.keys();
  if (as !== undefined) freeName(strings.document.aUse, as, taken);
  const name = as ?? freshName(node, taken);
  return insertItem(graph, walk, name === node ? node : { use: node, as: name }, place);
}

export function insertLoop(graph: GraphDocument, walk: string, place: Place, fields: LoopFields = {}): WithId {
  return insertItem(graph, walk, newLoop(factsOf(walkOf(graph, walk)), fields, []), place);
}

/** A map that goes through no list yet. */
export function insertMap(graph: GraphDocument, walk: string, place: Place, fields: MapFields = {}): WithId {
  return insertItem(graph, walk, newMap(factsOf(walkOf(graph, walk)), fields), place);
}

export function insertParallel(
  graph: GraphDocument,
  walk: string,
  place: Place,
  fields: { when?: string } = {},
): WithId {
  return insertItem(graph, walk, emptyContainer("parallel", fields.when), place);
}

export function insertSequence(
  graph: GraphDocument,
  walk: string,
  place: Place,
  fields: { when?: string } = {},
): WithId {
  return insertItem(graph, walk, emptyContainer("sequence", fields.when), place);
}

/** A choice with two empty cases, which goes by nothing yet. */
export function insertChoice(graph: GraphDocument, walk: string, place: Place): WithId {
  return insertItem(graph, walk, { choose: "", cases: { a: [], b: [] } }, place);
}

export function insertFork(graph: GraphDocument, walk: string, fork: string, into: string, place: Place): WithId {
  for (const state of [fork, into])
    if (!own(graph.states, state)) throw new EditRefused(strings.document.thereIsNoStateAdd(state));
  if (fork === into) throw new EditRefused(strings.document.cantBeForkedIntoItself(fork));
  return insertItem(graph, walk, { fork, into }, place);
}

export interface WithId {
  graph: GraphDocument;
  id: ItemId;
}

function insertItem(graph: GraphDocument, walk: string, item: Item, place: Place): WithId {
  const body = takeApart(graph, walk);
  const holder = holderOf(body, place.parent);
  const piece = newPiece(item);
  insert(holder, clamp(place.index, holder), piece);
  const settled = settle(graph, walk, body);
  return { graph: settled.graph, id: settled.idOf(piece) };
}

// ── take out and move ───────────────────────────────────────────────────────────────────────────

/**
 * Move items, in the Walk's order, to a place; its index counts the items that are there now. Edges that come to leave a
 * map, or leave or enter no loop any more, get and lose the flags for that.
 */
export function moveItems(graph: GraphDocument, walk: string, ids: readonly ItemId[], place: Place): GraphDocument {
  const body = takeApart(graph, walk);
  const pieces = outermost(graph, walk, body, ids);
  if (pieces.some((piece) => piece.branch)) throw new EditRefused(strings.document.aCaseStaysInItsChoice);
  const holder = holderOf(body, place.parent);
  if (pieces.some((piece) => isWithin(holder, piece))) throw new EditRefused(strings.document.anItemCantBeMoved);
  const anchor = holder.children.slice(clamp(place.index, holder)).find((piece) => !pieces.includes(piece));
  for (const piece of pieces) {
    const from = piece.parent;
    detach(piece);
    pruneList(from, holder);
  }
  insert(holder, anchor ? indexOf(anchor) : holder.children.length, ...pieces);
  return reflagged(settle(graph, walk, body).graph, walk, factsOf(body.walk));
}

/**
 * Take items out, with what they hold, their edges, their results, the `until` of loops that they end, the heads of
 * choices and maps that name them, and their part in merges. `bridge` joins the edges into each of them with those out
 * of it, where types are equal.
 */
export function removeItems(
  graph: GraphDocument,
  walk: string,
  ids: readonly ItemId[],
  options: { bridge?: boolean; catalogue?: Catalogue } = {},
): GraphDocument {
  const body = takeApart(graph, walk);
  const facts = factsOf(body.walk);
  const pieces = outermost(graph, walk, body, ids);
  const names = new Set(
    pieces
      .flatMap((piece) => flat([entryOf(facts, piece.was!)]))
      .flatMap((entry) => (entry.kind === "use" ? entry.name : [])),
  );
  const remaining = facts.list.filter(
    (entry) => entry.kind === "use" && !pieces.some((piece) => holds(piece, entry)),
  );
  for (const entry of remaining) names.delete(entry.name);
  const joined = options.bridge ? bridged(graph, walk, [...names], options.catalogue ?? {}) : graph;
  for (const piece of pieces) {
    const from = piece.parent;
    detach(piece);
    pruneList(from);
  }
  const settled = settle(joined, walk, { ...body, walk: walkOf(joined, walk) }).graph;
  return withoutReferences(
    settled,
    walk,
    (reference) =>
      typeof reference === "string" && reference.includes(".") && names.has(splitReference(reference)[0]),
  );
}

// ── change ──────────────────────────────────────────────────────────────────────────────────────

/** Change fields of an item; null takes one away. A new name is followed wherever the Walk refers to it. */
export function setItem(graph: GraphDocument, walk: string, id: ItemId, fields: ItemFields): GraphDocument {
  const facts = factsOf(walkOf(graph, walk));
  const entry = entryOf(facts, id);
  if (isBranch(entry.kind)) throw new EditRefused(strings.document.aCaseHasOnlyAName);
  let made = graph;
  const plain: ItemFields = { ...fields };
  if (entry.kind === "loop" && fields.loop !== undefined) {
    made = renameLoopItem(made, walk, facts, entry, fields.loop);
  }
  if (entry.kind === "map" && "as" in fields) {
    const name = fields.as || MAP_NAME;
    made = renameLoopItem(made, walk, facts, entry, name);
    plain.as = name === MAP_NAME ? null : name;
  }
  if (entry.kind === "use" && "as" in fields) {
    const name = fields.as || entry.node;
    if (name !== entry.name) {
      freeName(strings.document.aUse, name, facts.uses.keys());
      if (facts.uses.get(entry.name) === entry) {
        made = renameStreamUse(renameUse(made, walk, entry.name, name), walk, entry.name, name);
      }
    }
    plain.as = name === entry.node ? null : name;
  }
  if (fields.drop_last === false) plain.drop_last = null;
  if (fields.width === ONE) plain.width = null;
  const body = takeApart(made, walk);
  const piece = pieceOf(body, entry.id);
  piece.item = withItemFields(piece.item, plain);
  return settle(made, walk, body).graph;
}

function withItemFields(item: Item, fields: ItemFields): Item {
  const plain = Object.entries(fields).filter(([, value]) => value !== undefined);
  const sets = plain.some(([, value]) => value !== null);
  if (typeof item === "string")
    return sets ? shortest(withFields({ use: item }, Object.fromEntries(plain)) as Item) : item;
  if (Array.isArray(item))
    return sets ? shortest(withFields({ sequence: item }, Object.fromEntries(plain)) as Item) : item;
  const made = withFields(item as object, Object.fromEntries(plain)) as Item;
  return made === item ? item : shortest(made);
}

/** The shorthand of an item that has nothing else to say. */
function shortest(item: Item): Item {
  const keys = Object.keys(item as object);
  if (keys.length !== 1) return item;
  if (keys[0] === "use") return (item as { use: string }).use;
  return keys[0] === "sequence" ? (item as { sequence: Item[] }).sequence : item;
}

function renameLoopItem(graph: GraphDocument, walk: string, facts: Facts, loop: Entry, name: string): GraphDocument {
  if (name === loop.name) return graph;
  freeLoopName(facts, name);
  const inside = flat(loop.children).filter((entry) => entry.kind === "use");
  const nodes = new Set(inside.map((entry) => entry.node));
  let made = renameLoopIndex(graph, walk, loop.name, name);
  for (const node of nodes) {
    const params = own(graph.nodes, node)?.params ?? {};
    const reads = (value: unknown) =>
      typeof value === "string" && value.startsWith("=") && readsLoop(value.slice(1), loop.name);
    const param = Object.keys(params).find((key) => reads(params[key]));
    if (param === undefined) continue;
    const elsewhere = Object.entries(graph.walks ?? {}).find(
      ([other, body]) => other !== walk && loopsAround(factsOf(body), node).has(loop.name),
    );
    if (elsewhere) throw new EditRefused(strings.document.ofNodeReadsLoop(param, node, loop.name, elsewhere[0]));
    const renamed = mapped(params, (value) =>
      typeof value === "string" && reads(value) ? renameLoop(value, loop.name, name) : value,
    );
    made = withSection(made, "nodes", withKey(made.nodes!, node, withKey(made.nodes![node]!, "params", renamed)));
  }
  return made;
}

function loopsAround(facts: Facts, node: string): Set<string> {
  return new Set(facts.list.flatMap((entry) => (entry.kind === "use" && entry.node === node ? entry.loops : [])));
}

function freeLoopName(facts: Facts, name: string): void {
  freeName(strings.document.aLoop, name, loopNames(facts));
  if (name === "index" || !canBeNamed(name)) throw new EditRefused(strings.document.aLoopCantBeNamed(name, name));
}

/** Names of loops and maps, whose indices expressions read alike. */
function loopNames(facts: Facts): string[] {
  return facts.list.flatMap((entry) => (isLoop(entry.kind) ? entry.name : []));
}

export function emptyContainer(kind: "parallel" | "sequence" | "choose", when?: string | null): Item {
  if (kind === "choose") return withFields({ choose: "", cases: {} }, { when }) as unknown as Item;
  return withFields({ [kind]: [] }, { when }) as unknown as Item;
}

export function newLoop(facts: Facts, fields: LoopFields, body: Item[]): Item {
  const name = fields.loop ?? freshName("loop", loopNames(facts));
  freeLoopName(facts, name);
  const { until, drop_last, when } = fields;
  const rest = { until, drop_last: drop_last || null, when };
  return { ...withFields({ loop: name, times: fields.times ?? "1" }, rest), body } as Item;
}

/** The most items of a map until somebody says otherwise. */
const BOUND = "100";
/** As many items at once as a map has that says nothing of it. */
const ONE = "1";

export function newMap(facts: Facts, { map = "", as, bound = BOUND, width, when }: MapFields = {}): Item {
  const name = as ?? freshName(MAP_NAME, loopNames(facts));
  freeLoopName(facts, name);
  const rest = { bound, width: width === ONE ? null : width, when };
  return { ...withFields({ map }, { as: name === MAP_NAME ? null : name, ...rest }), body: [] } as unknown as Item;
}

// ── shared ──────────────────────────────────────────────────────────────────────────────────────

/** The pieces of these ids without those inside others of them, in the Walk's order. */
export function outermost(graph: GraphDocument, walk: string, body: Body, ids: readonly ItemId[]): Piece[] {
  const chosen = new Set(ids.map((id) => pieceOf(body, id)));
  const order = factsOf(walkOf(graph, walk)).list.map((entry) => body.byId.get(entry.id)!);
  return order.filter((piece) => {
    if (!chosen.has(piece)) return false;
    for (let at = piece.parent; at; at = at.parent) if (chosen.has(at)) return false;
    return true;
  });
}

export function clamp(index: number | undefined, holder: Piece): number {
  return Math.max(0, Math.min(index ?? holder.children.length, holder.children.length));
}

/** A condition put on top of the one that an item has. */
export function guarded(item: Item, when: string | null): Item {
  if (when === null) return item;
  const own = whenOf(item);
  return withItemFields(item, { when: own === null ? when : both(when, own) });
}

function holds(piece: Piece, entry: Entry): boolean {
  for (let at: Entry | null = entry; at; at = at.parent) if (at.id === piece.was) return true;
  return false;
}
