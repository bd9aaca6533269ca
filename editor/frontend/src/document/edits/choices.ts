// Choices of a Walk: their cases, and the merges behind them.
import type { Catalogue } from "../../messages/answers";
import { freshName, splitReference } from "../names";
import { factsOf } from "../routes";
import { branchesOf, flat, isBranch, type Entry } from "../tree";
import type { Choose, GraphDocument, ItemId } from "../types";
import { changeWalk, entryOf, freeName, own, walkOf } from "./parts/document";
import { caseName, casesOf } from "./heads";
import { removeItems, type WithId } from "./items";
import { Judge } from "./judge";
import { changeLayout, rekeyed, walkCanvas } from "./parts/layout";
import { changeSources, dissolved, mergeRef, withoutMerge } from "./parts/merges";
import { detach, insert, newBranch, pieceOf, settle, takeApart } from "./parts/pieces";
import { renameStreamSource } from "./streams";
import { EditRefused, sentence, withRenamed, withWalkPart } from "./parts/records";
import { mapReferences } from "./parts/references";
import { strings } from "../../strings";

// ── cases ───────────────────────────────────────────────────────────────────────────────────────

/** One more case, empty; under the next value of a flag, else under the next letter, unless `name` says otherwise. */
export function addCase(
  graph: GraphDocument,
  walk: string,
  id: ItemId,
  name?: string,
  type: string | null = null,
): WithId {
  const taken = caseNames(choiceOf(graph, walk, id));
  if (name !== undefined) freeCase(name, taken);
  const next = casesOf(type).find((value) => !taken.includes(value)) ?? letters(taken);
  return branched(graph, walk, id, "case", name ?? next);
}

function letters(taken: readonly string[]): string {
  let number = 0;
  while (taken.includes(caseName(number))) number += 1;
  return caseName(number);
}

/** The branch that is taken where no case has the value; empty at first. */
export function addOtherwise(graph: GraphDocument, walk: string, id: ItemId): WithId {
  const there = choiceOf(graph, walk, id).children.find((branch) => branch.kind === "otherwise");
  return there ? { graph, id: there.id } : branched(graph, walk, id, "otherwise", "");
}

function branched(graph: GraphDocument, walk: string, id: ItemId, kind: "case" | "otherwise", name: string): WithId {
  const body = takeApart(graph, walk);
  const piece = pieceOf(body, id);
  const branch = newBranch(kind, name);
  const last = piece.children.at(-1);
  const at =
    kind === "case" && last?.branch?.kind === "otherwise" ? piece.children.length - 1 : piece.children.length;
  insert(piece, at, branch);
  const settled = settle(graph, walk, body);
  return { graph: settled.graph, id: settled.idOf(branch) };
}

/** Another value for a case. Any text can be one: a text itself, a number in decimal, `true` or `false`. */
export function renameCase(graph: GraphDocument, walk: string, id: ItemId, to: string): WithId {
  const entry = entryOf(factsOf(walkOf(graph, walk)), id);
  if (entry.kind !== "case") throw new EditRefused(strings.document.onlyACaseHasAValue);
  if (entry.name === to) return { graph, id };
  freeCase(to, caseNames(entry.parent!));
  const body = takeApart(graph, walk);
  const piece = pieceOf(body, id);
  piece.branch = { kind: "case", name: to };
  const settled = settle(graph, walk, body);
  return { graph: settled.graph, id: settled.idOf(piece) };
}

/** Take a branch away with all that is in it. */
export function removeBranch(graph: GraphDocument, walk: string, id: ItemId): GraphDocument {
  const entry = entryOf(factsOf(walkOf(graph, walk)), id);
  if (!isBranch(entry.kind)) throw new EditRefused(strings.document.onlyACaseHasAValue);
  return removeItems(graph, walk, [id]);
}

/** A branch's steps put where the choice stands, before it; the branch stays, empty. */
export function emptyBranch(graph: GraphDocument, walk: string, id: ItemId): GraphDocument {
  const body = takeApart(graph, walk);
  const piece = pieceOf(body, id);
  const held = [...piece.children];
  const choice = piece.parent;
  if (!piece.branch || !choice?.parent) throw new EditRefused(strings.document.onlyACaseHasAValue);
  held.forEach(detach);
  insert(choice.parent, choice.parent.children.indexOf(choice), ...held);
  return settle(graph, walk, body).graph;
}

function choiceOf(graph: GraphDocument, walk: string, id: ItemId): Entry {
  const entry = entryOf(factsOf(walkOf(graph, walk)), id);
  if (entry.kind !== "choose") throw new EditRefused(strings.document.thisIsNoChoice);
  return entry;
}

function caseNames(choice: Entry): string[] {
  return branchesOf(choice.item as Choose).flatMap(({ kind, name }) => (kind === "case" ? name : []));
}

function freeCase(name: string, taken: readonly string[]): void {
  if (!name) throw new EditRefused(strings.document.aCaseNeedsAValue);
  if (taken.includes(name)) throw new EditRefused(strings.document.thereIsAlreadyACase(name));
}

// ── merges ──────────────────────────────────────────────────────────────────────────────────────

/** A merge of these ports of different branches. */
export function addMerge(
  graph: GraphDocument,
  walk: string,
  sources: readonly string[],
  name?: string,
): { graph: GraphDocument; name: string } {
  const { merges } = factsOf(walkOf(graph, walk));
  if (name !== undefined) freeName(strings.document.aMerge, name, merges.keys());
  const made = name ?? freshName(splitReference(sources[0] ?? "")[1], merges.keys());
  const change = changeWalk(graph, walk, (body) =>
    withWalkPart(body, "merges", { ...body.merges, [made]: [...sources] }),
  );
  return { graph: change, name: made };
}

/** Let a merge take one port more; one of the same branch gives way to it. */
export function addToMerge(
  graph: GraphDocument,
  walk: string,
  name: string,
  from: string,
  catalogue: Catalogue = {},
): GraphDocument {
  const judge = new Judge(graph, walk, catalogue);
  const verdict = judge.judge(from, mergeRef(name));
  if (typeof verdict === "string") throw new EditRefused(sentence(verdict));
  const gone = new Set(judge.displaced(from, name));
  return changeSources(graph, walk, (sources, other) =>
    other === name ? [...sources.filter((source) => !gone.has(source)), from] : sources,
  );
}

/** A merge without one of its sources; the last one left is read without a merge. */
export function removeFromMerge(graph: GraphDocument, walk: string, name: string, index: number): GraphDocument {
  mergeNamed(graph, walk, name);
  return changeSources(graph, walk, (sources, other) =>
    other === name && index in sources ? sources.filter((_, at) => at !== index) : sources,
  );
}

/** Another name for a merge, followed wherever the Walk reads it. */
export function renameMerge(graph: GraphDocument, walk: string, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  mergeNamed(graph, walk, from);
  freeName(strings.document.aMerge, to, Object.keys(walkOf(graph, walk).merges!));
  const streamed = renameStreamSource(graph, walk, mergeRef(from), mergeRef(to));
  const named = changeWalk(streamed, walk, (body) =>
    withWalkPart(body, "merges", withRenamed(body.merges!, from, to)),
  );
  const followed = mapReferences(named, walk, (reference, side) =>
    side === "source" && reference === mergeRef(from) ? mergeRef(to) : reference,
  );
  return changeLayout(followed, walkCanvas(walk), (layout) =>
    rekeyed(layout, (key) => (key === `merge:${from}` ? `merge:${to}` : key)),
  );
}

/** Take a merge away with the edges, results and values that read it; with `keep`, they read that source instead. */
export function removeMerge(graph: GraphDocument, walk: string, name: string, keep?: string): GraphDocument {
  mergeNamed(graph, walk, name);
  return keep === undefined ? withoutMerge(graph, walk, name) : dissolved(graph, walk, name, keep);
}

function mergeNamed(graph: GraphDocument, walk: string, name: string): void {
  if (own(walkOf(graph, walk).merges, name) === undefined)
    throw new EditRefused(strings.document.thereIsNoMergeWithName(name));
}

/** The merges whose sources stand in a choice. */
export function mergesBehind(graph: GraphDocument, walk: string, choice: Entry): string[] {
  const inside = new Set(flat([choice]).map(({ id }) => id));
  const { merges } = factsOf(walkOf(graph, walk));
  return [...merges.values()].flatMap((merge) => (merge.choice && inside.has(merge.choice.id) ? merge.name : []));
}
