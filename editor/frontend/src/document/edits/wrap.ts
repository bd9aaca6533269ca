// Items put into a container of their own, and taken out of one again.
import { readLink, splitReference, whenOf } from "../names";
import { factsOf, type Facts } from "../routes";
import { isBranch, isContainer, isLoop, type Entry } from "../tree";
import type { GraphDocument, Item, ItemId } from "../types";
import { caseName } from "./heads";
import { changeWalk, entryOf, linksOf, walkOf, withEdges } from "./parts/document";
import {
  emptyContainer,
  guarded,
  newLoop,
  newMap,
  outermost,
  type LoopFields,
  type MapFields,
  type WithId,
  type WrapKind,
} from "./items";
import { reflagged } from "./parts/flags";
import { changeSources } from "./parts/merges";
import { ancestors, dependents, needsOf } from "./parts/order";
import { detach, indexOf, insert, newBranch, newPiece, pieceOf, settle, takeApart, type Piece } from "./parts/pieces";
import { EditRefused, mappedList } from "./parts/records";
import { mapLink, renamedIn } from "./parts/references";
import { strings } from "../../strings";

/**
 * Put items of one list into a new container in the place of the first. What stands between them comes before it where
 * one of them needs it, else after it. In a parallel, those that feed one another form a row, in a choice a case. What
 * leaves a map is collected, or goes to the client one by one.
 */
export function wrap(
  graph: GraphDocument,
  walk: string,
  ids: readonly ItemId[],
  kind: WrapKind,
  fields: LoopFields & MapFields = {},
): WithId {
  const body = takeApart(graph, walk);
  const facts = factsOf(body.walk);
  const pieces = outermost(graph, walk, body, ids);
  const holder = pieces[0]?.parent;
  if (!holder) throw new EditRefused(strings.document.selectWhatToWrap);
  if (pieces.some((piece) => piece.branch)) throw new EditRefused(strings.document.aCaseStaysInItsChoice);
  if (pieces.some((piece) => piece.parent !== holder))
    throw new EditRefused(strings.document.selectItemsOfOneContainer);
  const siblings = holder.children.map((piece) => entryOf(facts, piece.was!));
  const needs = needsOf(graph, facts, siblings);
  const chosen = pieces.map(indexOf);
  const later = isParallel(holder) ? new Set<number>() : between(needs, chosen, siblings);
  // Branches of a choice may share a state: they only must not feed one another.
  const tied = kind === "choose" ? needsOf(graph, facts, siblings, { states: false }) : needs;
  const branching = kind === "parallel" || kind === "choose";
  const rows = branching ? components(tied, chosen) : chosen.map((index) => [index]);
  if (kind === "parallel" && rows.length === 1 && chosen.length > 1)
    throw new EditRefused(strings.document.theseItemsFeedOneAnother);

  const needed = isParallel(holder) ? new Set<number>() : ancestors(needs, chosen);
  const earlier = siblings.map((_, index) => index).filter((index) => needed.has(index) && !chosen.includes(index));
  const sooner = earlier.filter((index) => index > chosen[0]!).map((index) => holder.children[index]!);
  const moved = [...later].sort((a, b) => a - b).map((index) => holder.children[index]!);
  const grouped = rows.map((row) => row.map((index) => holder.children[index]!));
  const container = newPiece(newContainer(facts, kind, fields));
  const outer = siblings[chosen[0]!]!.loops.at(-1);
  insert(holder, chosen[0]!, container);
  for (const [number, group] of grouped.entries()) {
    group.forEach(detach);
    if (kind === "choose") {
      const branch = newBranch("case", caseName(number));
      insert(branch, 0, ...group);
      insert(container, container.children.length, branch);
    } else if (group.length === 1) insert(container, container.children.length, group[0]!);
    else {
      const row = newPiece([]);
      insert(row, 0, ...group);
      insert(container, container.children.length, row);
    }
  }
  if (kind === "choose" && grouped.length === 1) insert(container, 1, newBranch("case", caseName(1)));
  sooner.forEach(detach);
  insert(holder, indexOf(container), ...sooner);
  moved.forEach(detach);
  insert(holder, indexOf(container) + 1, ...moved);
  const wrapped = chosen.map((index) => siblings[index]!);
  const named = isLoop(kind) && outer !== undefined ? nameOuter(graph, walk, wrapped, outer, pieces) : graph;
  const settled = settle(named, walk, { ...body, walk: walkOf(named, walk) });
  return { graph: reflagged(settled.graph, walk, facts), id: settled.idOf(container) };
}

function newContainer(facts: Facts, kind: WrapKind, fields: LoopFields & MapFields): Item {
  if (kind === "loop") return newLoop(facts, fields, []);
  return kind === "map" ? newMap(facts, fields) : emptyContainer(kind, fields.when);
}

/** Items between the chosen ones that need one of them; refused if a chosen one needs them in turn. */
function between(needs: readonly Set<number>[], chosen: readonly number[], siblings: readonly Entry[]): Set<number> {
  const own = new Set(chosen);
  const last = chosen.at(-1)!;
  const after = new Set([...dependents(needs, chosen)].filter((index) => !own.has(index) && index < last));
  for (const index of chosen)
    for (const need of needs[index]!)
      if (after.has(need))
        throw new EditRefused(
          strings.document.standsBetweenTheseItems(called(siblings[need]!), called(siblings[index]!)),
        );
  return after;
}

/** Groups of the chosen that feed one another, each in order. */
function components(needs: readonly Set<number>[], chosen: readonly number[]): number[][] {
  const groups: number[][] = [];
  for (const index of chosen) {
    const tied = groups.filter((group) => group.some((other) => needs[index]!.has(other)));
    const rest = groups.filter((group) => !tied.includes(group));
    groups.splice(
      0,
      groups.length,
      ...rest,
      [...tied.flat(), index].sort((a, b) => a - b),
    );
  }
  return groups.sort((a, b) => a[0]! - b[0]!);
}

/** `@loop.index` of items that get a loop around them goes on meaning the one it meant. */
function nameOuter(
  graph: GraphDocument,
  walk: string,
  chosen: readonly Entry[],
  outer: string,
  pieces: readonly Piece[],
): GraphDocument {
  const depth = chosen[0]!.loops.length;
  const uses = new Set<string>();
  const visit = (piece: Piece, entry: Entry): void => {
    piece.item = renamedIn(piece.item, "index", outer);
    if (entry.kind === "use") uses.add(entry.name);
    entry.children.forEach((child, index) => {
      if (child.loops.length === depth) visit(piece.children[index]!, child);
    });
  };
  pieces.forEach((piece, index) => visit(piece, chosen[index]!));
  return changeWalk(graph, walk, (body) =>
    withEdges(
      body,
      mappedList(linksOf(body), (link) => {
        const { from, to } = readLink(link);
        const reads = from === "@loop.index" && uses.has(splitReference(to)[0]);
        return reads ? mapLink(link, (end, side) => (side === "source" ? `@loop.${outer}` : end)) : link;
      }),
    ),
  );
}

/**
 * Take a container away and leave what it holds in its place; its condition stays with each of them. Without a choice,
 * its merges give way to their first source.
 */
export function unwrap(graph: GraphDocument, walk: string, id: ItemId): GraphDocument {
  const body = takeApart(graph, walk);
  const facts = factsOf(body.walk);
  const entry = entryOf(facts, id);
  const piece = pieceOf(body, id);
  const { kind } = entry;
  if (isBranch(kind)) throw new EditRefused(strings.document.aCaseStaysInItsChoice);
  if (!isContainer(kind)) throw new EditRefused(strings.document.onlyAContainerCan);
  const holder = piece.parent!;
  const when = whenOf(piece.item);
  const held = kind === "choose" ? piece.children.flatMap((branch) => branch.children) : [...piece.children];
  for (const child of held) child.item = guarded(child.item, when);
  const freed = kind === "parallel" && !isParallel(holder) ? held.flatMap(asRow) : held;
  const place = indexOf(piece);
  if (isParallel(holder) && kind !== "parallel" && freed.length > 1) {
    if (kind === "sequence") separate(graph, facts, entry);
    if (kind !== "sequence") {
      const row = newPiece([]);
      insert(row, 0, ...freed);
      freed.splice(0, freed.length, row);
    }
  }
  detach(piece);
  insert(holder, place, ...freed);
  const made = settle(graph, walk, body).graph;
  if (kind === "choose")
    return changeSources(made, walk, (sources, name) => {
      return facts.merges.get(name)?.choice === entry ? sources.slice(0, 1) : sources;
    });
  return reflagged(made, walk, facts);
}

/** A plain list among the branches goes into the row around it. */
function asRow(piece: Piece): Piece[] {
  return Array.isArray(piece.item) ? piece.children.flatMap(asRow) : [piece];
}

function separate(graph: GraphDocument, facts: Facts, entry: Entry): void {
  const needs = needsOf(graph, facts, entry.children);
  const index = needs.findIndex((each) => each.size > 0);
  if (index < 0) return;
  const [first] = needs[index]!;
  throw new EditRefused(
    strings.document.needsWhatComesBefore(called(entry.children[index]!), called(entry.children[first!]!)),
  );
}

function isParallel(piece: Piece): boolean {
  return piece.parent !== null && typeof piece.item === "object" && "parallel" in piece.item;
}

function called(entry: Entry): string {
  return entry.name
    ? `\`${entry.name}\``
    : entry.kind === "fork"
      ? strings.document.aFork
      : strings.document.aKind(entry.kind);
}
