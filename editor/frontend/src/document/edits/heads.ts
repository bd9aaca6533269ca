// The heads of choices and maps: the value that a choice goes by, and the list of a map.
import type { Catalogue } from "../../messages/answers";
import { portType } from "../ports";
import { parseType } from "../typing";
import { factsOf, headRef, isInside } from "../routes";
import { hasHead, headOf, type Entry } from "../tree";
import type { GraphDocument, Item, ItemId } from "../types";
import { setEdge, type WithIndex } from "./edges";
import { moveItems } from "./items";
import { Judge } from "./judge";
import { entryOf, walkOf } from "./parts/document";
import { pieceOf, settle, takeApart } from "./parts/pieces";
import { EditRefused, sentence, withKey } from "./parts/records";
import { strings } from "../../strings";

/** The names that cases have until they are given one: a, b, c, … */
export function caseName(number: number): string {
  return number < 26 ? String.fromCharCode(97 + number) : `case_${number + 1}`;
}

/** The cases that a type has all of: a flag is true or false. */
export function casesOf(type: string | null): string[] {
  return (type === null ? null : parseType(type))?.modality === "flag" ? ["true", "false"] : [];
}

/**
 * Let a choice go by a value, or a map through a list, which then comes before it; null: by none. Two cases that nobody
 * has named yet are named after the values of a flag. A list that the steps of a map took whole and that doesn't fit
 * them so is brought to them item by item.
 */
export function setHead(
  graph: GraphDocument,
  walk: string,
  id: ItemId,
  from: string | null,
  catalogue: Catalogue = {},
): GraphDocument {
  const entry = entryOf(factsOf(walkOf(graph, walk)), id);
  if (!hasHead(entry.kind)) throw new EditRefused(strings.document.hasNoHead);
  if (from === null) return written(graph, walk, entry, "");
  const verdict = new Judge(graph, walk, catalogue).judge(from, headRef(id));
  if (typeof verdict === "string") throw new EditRefused(sentence(verdict));
  const made =
    entry.kind === "choose"
      ? written(
          casesNamed(graph, walk, entry, casesOf(portType(graph, catalogue, walk, from, "source"))),
          walk,
          entry,
          from,
        )
      : itemised(written(graph, walk, entry, from), walk, entry.id, from, catalogue);
  return verdict.shift ? moveItems(made, walk, verdict.shift.ids, verdict.shift) : made;
}

/** A map that goes through no list yet goes through what an edge brings into it item by item. */
export function withList({ graph, index }: WithIndex, walk: string, catalogue: Catalogue): GraphDocument {
  const { routes, maps } = factsOf(walkOf(graph, walk));
  const { each, from, entered } = routes[index]!;
  const map = maps.get(entered[0] ?? "");
  if (!each || !map || headOf(map.item)) return graph;
  const verdict = new Judge(graph, walk, catalogue).judge(from, headRef(map.id));
  return typeof verdict === "string" ? graph : setHead(graph, walk, map.id, from, catalogue);
}

function written(graph: GraphDocument, walk: string, { id, kind }: Entry, value: string): GraphDocument {
  const body = takeApart(graph, walk);
  const piece = pieceOf(body, id);
  piece.item = withKey(piece.item as object, kind, value) as Item;
  return settle(graph, walk, body).graph;
}

function casesNamed(graph: GraphDocument, walk: string, choice: Entry, names: readonly string[]): GraphDocument {
  const cases = choice.children.filter((branch) => branch.kind === "case");
  const untouched = cases.every((branch, index) => branch.name === caseName(index));
  if (!names.length || cases.length !== names.length || !untouched) return graph;
  const body = takeApart(graph, walk);
  cases.forEach((branch, index) => (pieceOf(body, branch.id).branch = { kind: "case", name: names[index]! }));
  return settle(graph, walk, body).graph;
}

/** Edges from its list to the steps of a map that bring it whole, where only an item of it fits. */
function itemised(graph: GraphDocument, walk: string, id: ItemId, from: string, catalogue: Catalogue): GraphDocument {
  const facts = factsOf(walkOf(graph, walk));
  const map = entryOf(facts, id);
  const judge = new Judge(graph, walk, catalogue);
  const whole = facts.routes.filter(
    ({ from: source, target, enter }) =>
      source === from && enter === "held" && target.entry !== null && isInside(target.entry, map),
  );
  return whole.reduce((made, { index, to }) => {
    if (typeof judge.judge(from, to, { each: false }) !== "string") return made;
    return typeof judge.judge(from, to, { each: true }) === "string"
      ? made
      : setEdge(made, walk, index, { each: true });
  }, graph);
}
