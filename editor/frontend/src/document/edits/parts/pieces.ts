// A Walk's body taken apart, to be changed in place and put together again. What an edit doesn't touch stays the very
// object it was, shorthand included, and the layout follows items whose ids change.
import {
  branchesOf,
  childrenOf,
  isBranch,
  isContainer,
  kindOf,
  takesItems,
  withBranches,
  withChildren,
  type Branch,
  type Entry,
} from "../../tree";
import { factsOf } from "../../routes";
import type { Choose, GraphDocument, Item, ItemId, Walk } from "../../types";
import { changeWalk, walkOf } from "./document";
import { changeLayout, rekeyed, walkCanvas } from "./layout";
import { EditRefused, withWalkPart } from "./records";
import { strings } from "../../../strings";

export interface Piece {
  /** Its children here are those it had; `children` says which it has now. */
  item: Item;
  /** The id it had; null for a new one. */
  was: ItemId | null;
  parent: Piece | null;
  children: Piece[];
  /** Set for a branch of a choice, whose item is its list. */
  branch: Pick<Branch, "kind" | "name"> | null;
}

export interface Body {
  walk: Walk;
  /** Stands for the body itself; of its item only the children count. */
  root: Piece;
  byId: ReadonlyMap<ItemId, Piece>;
}

export function takeApart(graph: GraphDocument, name: string): Body {
  const walk = walkOf(graph, name);
  const byId = new Map<ItemId, Piece>();
  const root: Piece = { item: [], was: null, parent: null, children: [], branch: null };
  const read = (entry: Entry, parent: Piece): Piece => {
    const branch = isBranch(entry.kind) ? { kind: entry.kind, name: entry.name } : null;
    const piece: Piece = { item: entry.item, was: entry.id, parent, children: [], branch };
    byId.set(entry.id, piece);
    piece.children = entry.children.map((child) => read(child, piece));
    return piece;
  };
  root.children = factsOf(walk).tree.map((entry) => read(entry, root));
  return { walk, root, byId };
}

export function pieceOf(body: Body, id: ItemId): Piece {
  const piece = body.byId.get(id);
  if (!piece) throw new EditRefused(strings.document.theWalkNoLongerHasWithId(id));
  return piece;
}

/** The piece that holds children at a place. */
export function holderOf(body: Body, parent: ItemId | null): Piece {
  if (parent === null) return body.root;
  const piece = pieceOf(body, parent);
  if (kindOf(piece.item) === "choose") throw new EditRefused(strings.document.putItIntoOneOfItsCases);
  if (!takesItems(kindOf(piece.item))) throw new EditRefused(strings.document.cantHoldOtherItems(parent));
  return piece;
}

/** A new piece, with all that its item holds. */
export function newPiece(item: Item, parent: Piece | null = null): Piece {
  const piece: Piece = { item, was: null, parent, children: [], branch: null };
  const branches = branchesOf(item);
  piece.children = childrenOf(item).map((child, index) => {
    const made = newPiece(child, piece);
    const branch = branches[index];
    if (branch) made.branch = { kind: branch.kind, name: branch.name };
    return made;
  });
  return piece;
}

/** An empty branch for a choice's piece. */
export function newBranch(kind: Branch["kind"], name: string): Piece {
  const piece = newPiece([]);
  piece.branch = { kind, name };
  return piece;
}

export function insert(holder: Piece, index: number, ...pieces: Piece[]): void {
  holder.children.splice(index, 0, ...pieces);
  for (const piece of pieces) piece.parent = holder;
}

export function detach(piece: Piece): void {
  const siblings = piece.parent?.children;
  siblings?.splice(siblings.indexOf(piece), 1);
  piece.parent = null;
}

export function indexOf(piece: Piece): number {
  return piece.parent!.children.indexOf(piece);
}

/** A list written as such says nothing once it is empty. */
export function pruneList(holder: Piece | null, except: Piece | null = null): void {
  if (!holder?.parent || holder === except || holder.children.length) return;
  if (!Array.isArray(holder.item) || holder.branch) return;
  const parent = holder.parent;
  detach(holder);
  pruneList(parent, except);
}

export function isWithin(piece: Piece, holder: Piece): boolean {
  for (let at: Piece | null = piece; at; at = at.parent) if (at === holder) return true;
  return false;
}

export interface Settled {
  graph: GraphDocument;
  idOf: (piece: Piece) => ItemId;
}

/** Put the body together again. Positions and records of items follow their ids; those of removed items go. */
export function settle(graph: GraphDocument, name: string, body: Body): Settled {
  const items = body.root.children.map(put);
  const before = Array.isArray(body.walk.body) ? body.walk.body : [];
  const same = items.length === before.length && items.every((item, index) => item === before[index]);
  const made = same ? graph : changeWalk(graph, name, (walk) => withWalkPart(walk, "body", items));
  const ids = new Map<Piece, ItemId>();
  const renamed = new Map<ItemId, ItemId>();
  const follow = (pieces: readonly Piece[], entries: readonly Entry[]): void => {
    pieces.forEach((piece, index) => {
      const entry = entries[index]!;
      ids.set(piece, entry.id);
      if (piece.was !== null) renamed.set(piece.was, entry.id);
      follow(piece.children, entry.children);
    });
  };
  const facts = factsOf(walkOf(made, name));
  follow(body.root.children, facts.tree);
  const old = factsOf(body.walk).byId;
  const key = (id: string) => (old.has(id) ? renamed.get(id) : facts.byId.has(id) ? undefined : id);
  const graphed = same ? made : changeLayout(made, walkCanvas(name), (layout) => rekeyed(layout, key));
  return { graph: graphed, idOf: (piece) => ids.get(piece)! };
}

function put(piece: Piece): Item {
  const kind = kindOf(piece.item);
  if (!isContainer(kind)) return piece.item;
  if (kind === "choose") return putChoice(piece);
  const children = piece.children.map(put);
  const before = childrenOf(piece.item);
  if (children.length === before.length && children.every((child, index) => child === before[index]))
    return piece.item;
  return withChildren(piece.item, children);
}

/** Branches keep the order that the document gives their names: numbers come first. */
function putChoice(piece: Piece): Item {
  const branches = piece.children.map((child) => ({ ...child.branch!, items: put(child) as Item[] }));
  const before = branchesOf(piece.item);
  const same = branches.every(({ kind, name, items }, index) => {
    const old = before[index];
    return old !== undefined && old.kind === kind && old.name === name && old.items === items;
  });
  if (same && branches.length === before.length) return piece.item;
  const made = withBranches(piece.item as Choose, branches);
  const order = branchesOf(made).map(({ kind, name }) => `${kind}:${name}`);
  const place = ({ branch }: Piece) => order.indexOf(`${branch!.kind}:${branch!.name}`);
  piece.children.sort((a, b) => place(a) - place(b));
  return made;
}

/** Every piece below a holder, parents first. */
export function everyPiece(holder: Piece): Piece[] {
  return holder.children.flatMap((piece) => [piece, ...everyPiece(piece)]);
}
