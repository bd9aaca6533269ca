// Edges of a Walk: drawn, redrawn, taken away.
import type { Catalogue, Port } from "../../messages/answers";
import { freshName, readLink, type Collect, type PlainLink } from "../names";
import { portsOf, portType } from "../ports";
import { accepts, parseType } from "../typing";
import { factsOf, mapCarrying, mapLeft, routeOf, type Facts, type Route } from "../routes";
import type { GraphDocument, Item, ItemId, Link, Walk } from "../types";
import { sameLink, writeLink } from "./parts/bridge";
import { changeWalk, entryOf, freeName, linksOf, nodeOf, walkOf, withEdges } from "./parts/document";
import { changeLayout, rewired, walkCanvas } from "./parts/layout";
import { moveItems } from "./items";
import { Judge, type Verdict, type Wish } from "./judge";
import { ahead, behind } from "./parts/order";
import { detach, indexOf, insert, newPiece, pieceOf, settle, takeApart } from "./parts/pieces";
import { withFlags } from "./parts/flags";
import { EditRefused, kept, mappedList, sentence, withFields, withWalkPart } from "./parts/records";
import { changeSources, mergedWith } from "./parts/merges";
import { mapItems, mapLink, mapValues, renameUse } from "./parts/references";
import { renameStreamUse } from "./streams";
import { strings } from "../../strings";

export interface WithIndex {
  graph: GraphDocument;
  index: number;
}

/**
 * Draw an edge. The target is put behind the source where nothing forbids that; otherwise the loop around both carries
 * the value. A port with a writer keeps it only as the first value of a carried one; else the new edge replaces it, or
 * where the two come from different branches of a choice, a merge of both feeds the port.
 */
export function connect(
  graph: GraphDocument,
  walk: string,
  from: string,
  to: string,
  catalogue: Catalogue,
  wish: Wish = {},
): WithIndex {
  const verdict = new Judge(graph, walk, catalogue).judge(from, to, wish);
  if (typeof verdict === "string") throw new EditRefused(sentence(verdict));
  return draw(graph, walk, verdict, null);
}

/** Why `connect` would refuse; null: it wouldn't. */
export function whyNot(
  graph: GraphDocument,
  walk: string,
  from: string,
  to: string,
  catalogue: Catalogue,
  wish: Wish = {},
): string | null {
  const verdict = new Judge(graph, walk, catalogue).judge(from, to, wish);
  return typeof verdict === "string" ? sentence(verdict) : null;
}

/** `whyNot` for every other end of a wire that is dragged from its source, or from its target; worked out once. */
export function compatible(
  graph: GraphDocument,
  walk: string,
  end: "source" | "target",
  reference: string,
  catalogue: Catalogue,
): (other: string) => string | null {
  const judge = new Judge(graph, walk, catalogue);
  return remembered((other) => (end === "source" ? judge.judge(reference, other) : judge.judge(other, reference)));
}

function remembered(judge: (end: string) => Verdict | string): (end: string) => string | null {
  const known = new Map<string, string | null>();
  return (end) => {
    const found = known.get(end);
    if (found !== undefined) return found;
    const verdict = judge(end);
    const reason = typeof verdict === "string" ? sentence(verdict) : null;
    known.set(end, reason);
    return reason;
  };
}

/** Draw an edge to other ends; its flags stay where they still say something. */
export function reconnect(
  graph: GraphDocument,
  walk: string,
  index: number,
  ends: { from?: string; to?: string },
  catalogue: Catalogue,
): WithIndex {
  const old = linkAt(graph, walk, index);
  const [from, to] = [ends.from ?? old.from, ends.to ?? old.to];
  if (from === old.from && to === old.to) return { graph, index };
  const without = changeWalk(graph, walk, (body) => withEdges(body, spliced(linksOf(body), index, 1)));
  const judge = new Judge(without, walk, catalogue);
  const { each, collect } = old;
  const same = judge.judge(from, to, { each, collect });
  const verdict = typeof same === "string" ? judge.judge(from, to) : same;
  if (typeof verdict === "string") throw new EditRefused(sentence(verdict));
  return draw(without, walk, verdict, index);
}

/** Put the link of a verdict among the edges, in the place of those it replaces, or at `at`, or at the end. */
function draw(graph: GraphDocument, walk: string, verdict: Verdict, at: number | null): WithIndex {
  const { link, shift } = verdict;
  const written = writeLink(link);
  const moved = shift ? moveItems(graph, walk, shift.ids, shift) : graph;
  const body = walkOf(moved, walk);
  const links = linksOf(body);
  const known = links.findIndex((other) => sameLink(other, written));
  if (known >= 0) return { graph: moved, index: known };
  const replaced = rivals(factsOf(body), link);
  const joined = merging(moved, walk, replaced, link.from);
  if (joined) return joined;
  const place = replaced[0] ?? at ?? links.length;
  const index = place - replaced.filter((each) => each < place).length;
  const rest = links.filter((_, position) => !replaced.includes(position));
  const edges = [...rest.slice(0, index), written, ...rest.slice(index)];
  return { graph: changeWalk(moved, walk, (changed) => withEdges(changed, edges)), index };
}

/** The edge that a new source joins by a merge; null where all of them give way. */
function merging(graph: GraphDocument, walk: string, rivals: readonly number[], from: string): WithIndex | null {
  const links = linksOf(walkOf(graph, walk));
  for (const index of rivals) {
    const found = mergedWith(graph, walk, readLink(links[index]!).from, from);
    if (!found) continue;
    const change = (body: Walk) =>
      withEdges(
        body,
        mappedList(linksOf(body), (link, at) =>
          at === index ? mapLink(link, (end, side) => (side === "source" ? found.reference : end)) : link,
        ),
      );
    return { graph: changeWalk(found.graph, walk, change), index };
  }
  return null;
}

/** Indices of the edges that can't stay beside a new one: a port has one writer, and one carried at each loop. */
function rivals(facts: Facts, link: PlainLink): number[] {
  const route = routeOf(facts, link, -1, "");
  if (route.target.kind === "out") return facts.routes.flatMap((each) => (each.to === link.to ? each.index : []));
  const clash = (other: Route): boolean => {
    if (other.from === link.from) return true;
    if (other.carried && route.carried) return other.common === route.common;
    if (!other.carried && !route.carried) return true;
    const [first, carried] = route.carried ? [other, route] : [route, other];
    return carried.common <= first.common;
  };
  return (facts.feeds.get(link.to) ?? []).filter(clash).map((each) => each.index);
}

export function removeEdges(graph: GraphDocument, walk: string, indices: readonly number[]): GraphDocument {
  const gone = new Set(indices);
  const before = walkOf(graph, walk);
  const left = kept(linksOf(before), (_, index) => !gone.has(index));
  if (left === linksOf(before)) return graph;
  const made = changeWalk(graph, walk, (body) => withEdges(body, left));
  const wires = new Set(left.map((link) => wire(link)));
  const lost = linksOf(before)
    .filter((_, index) => gone.has(index))
    .map(wire);
  return changeLayout(made, walkCanvas(walk), (layout) =>
    lost.some((key) => layout.reroutes?.[key] && !wires.has(key))
      ? withFields(layout, {
          reroutes: withFields(layout.reroutes!, Object.fromEntries(lost.map((key) => [key, null]))),
        })
      : layout,
  );
}

/** Set or clear flags; an edge without flags is written in the short form where it was, or where it loses its last. */
export function setEdge(
  graph: GraphDocument,
  walk: string,
  index: number,
  fields: { each?: boolean; collect?: Collect },
): GraphDocument {
  const old = linkAt(graph, walk, index);
  const wanted: PlainLink = { ...old, ...definite(fields) };
  if (wanted.each === old.each && wanted.collect === old.collect) return graph;
  const facts = factsOf(walkOf(graph, walk));
  const route = routeOf(facts, wanted, index, "");
  const fault = flagFault(facts, route, fields);
  if (fault) throw new EditRefused(sentence(fault));
  return changeWalk(graph, walk, (body) =>
    withEdges(
      body,
      mappedList(linksOf(body), (link, position) => (position === index ? withFlags(link, wanted) : link)),
    ),
  );
}

function flagFault(facts: Facts, route: Route, fields: { each?: boolean; collect?: Collect }): string | null {
  if (fields.collect && !route.left.length) return strings.document.theEdgeLeavesNoLoop;
  if (fields.each && route.target.kind === "out" && !route.left.length) return strings.document.theEdgeLeavesNoLoop2;
  if (fields.each && route.target.kind !== "out" && !route.entered.length)
    return strings.document.theEdgeEntersNoLoop;
  if (route.each && route.collect && route.target.kind === "out") return strings.document.anOutputGetsEachValue;
  const map = route.leave === "last" ? mapLeft(facts, route) : null;
  return map === null ? null : strings.document.hasAValueForEveryItem(route.source.name, map);
}

/** Change the order, so that the value is used in the same iteration. */
export function makeForward(graph: GraphDocument, walk: string, index: number): GraphDocument {
  const { source, target, backward } = routeAt(graph, walk, index);
  if (!backward || !source.place || !target.place) return graph;
  const shift = behind(graph, factsOf(walkOf(graph, walk)), target.place, source.place);
  if (typeof shift === "string") throw new EditRefused(sentence(strings.document.cantComeLater(target.name, shift)));
  return moveItems(graph, walk, shift.ids, shift);
}

/** Change the order, so that the loop around both ends takes the value to its next iteration. */
export function makeCarried(graph: GraphDocument, walk: string, index: number): GraphDocument {
  const route = routeAt(graph, walk, index);
  const { source, target, backward, common } = route;
  if (!source.place || !target.place) throw new EditRefused(strings.document.onlyAnEdgeBetweenTwo);
  if (!common) throw new EditRefused(strings.document.noLoopHoldsBothEnds);
  const map = mapCarrying(factsOf(walkOf(graph, walk)), route);
  if (map !== null) throw new EditRefused(sentence(strings.document.itemsAreIndependent(map)));
  if (backward) return graph;
  // The edge itself is the only one that may turn round.
  const without = changeWalk(graph, walk, (body) => withEdges(body, spliced(linksOf(body), index, 1)));
  const facts = factsOf(walkOf(without, walk));
  const shift = ahead(without, facts, facts.byId.get(target.place.id)!, facts.byId.get(source.place.id)!);
  if (typeof shift === "string")
    throw new EditRefused(sentence(strings.document.cantComeEarlier(target.name, shift)));
  return moveItems(graph, walk, shift.ids, shift);
}

/** Put a use of a node into an edge, at ports whose types fit; after the source, or before the target where the edge enters a loop. */
export function insertOnEdge(
  graph: GraphDocument,
  walk: string,
  index: number,
  node: string,
  catalogue: Catalogue,
): { graph: GraphDocument; id: ItemId } {
  nodeOf(graph, node);
  const route = routeAt(graph, walk, index);
  const ports = through(graph, walk, route, node, catalogue);
  const facts = factsOf(walkOf(graph, walk));
  const name = freshName(node, facts.uses.keys());
  const body = takeApart(graph, walk);
  const piece = newPiece(name === node ? node : { use: node, as: name });
  const beside = route.source.place && (route.left.length || !route.entered.length) ? route.source.place : null;
  const anchor = beside ?? route.target.entry;
  if (!anchor) insert(body.root, 0, piece);
  else {
    let at = pieceOf(body, anchor.id);
    if (at.parent!.item && (at.parent!.item as { parallel?: unknown }).parallel !== undefined) {
      const row = newPiece([]);
      insert(at.parent!, indexOf(at), row);
      detach(at);
      insert(row, 0, at);
    }
    insert(at.parent!, indexOf(at) + (beside ? 1 : 0), piece);
  }
  const settled = settle(graph, walk, body);
  const { from, to, each, collect } = route;
  const near: PlainLink = { from, to: `${name}.${ports.input}`, each: !beside && each, collect: !beside && collect };
  const far: PlainLink = {
    from: `${name}.${ports.output}`,
    to,
    each: !!beside && each,
    collect: !!beside && collect,
  };
  const made = changeWalk(settled.graph, walk, (changed) =>
    withEdges(changed, spliced(linksOf(changed), index, 1, writeLink(near), writeLink(far))),
  );
  return { graph: made, id: settled.idOf(piece) };
}

/** The first input that takes what the edge gives, and the first output that its target takes. */
function through(graph: GraphDocument, walk: string, route: Route, node: string, catalogue: Catalogue) {
  const ports = portsOf(graph, catalogue, node);
  const given = portType(graph, catalogue, walk, route.from, "source");
  const taken = portType(graph, catalogue, walk, route.to, "target");
  const modality = (type: string | null) => (type === null ? null : (parseType(type)?.modality ?? null));
  const fits = (a: string | null, b: string | null) =>
    a === null ||
    b === null ||
    accepts(a, b) === null ||
    (route.entered.length + route.left.length > 0 && modality(a) === modality(b));
  const input = preferred(ports.inputs, (port) => fits(port.type, given));
  const output = ports.outputs.find((port) => fits(taken, port.type));
  if (!input || !output) {
    const what = input ? strings.document.hasNoOutputThatTakes(route.to) : strings.document.takesNoOutput(route.from);
    throw new EditRefused(strings.document.chooseAnotherNode(node, what));
  }
  return { input: input.name, output: output.name };
}

function preferred<P extends Port>(ports: readonly P[], fits: (port: P) => boolean): P | undefined {
  const fitting = ports.filter(fits);
  return fitting.find((port) => !port.optional) ?? fitting[0];
}

/** Let a use play another node. Wires stay at ports of the same name, else at the first free one whose type fits; others go. */
export function replaceUse(
  graph: GraphDocument,
  walk: string,
  id: ItemId,
  node: string,
  catalogue: Catalogue,
): { graph: GraphDocument; id: ItemId } {
  nodeOf(graph, node);
  const facts = factsOf(walkOf(graph, walk));
  const entry = entryOf(facts, id);
  if (entry.kind !== "use") throw new EditRefused(strings.document.onlyAUseCanChange);
  if (entry.node === node) return { graph, id };
  const kept = entry.name !== entry.node;
  const name = kept || facts.uses.has(node) ? (kept ? entry.name : freshName(node, facts.uses.keys())) : node;
  if (name !== entry.name) freeName(strings.document.aUse, name, facts.uses.keys());
  const rewiredGraph = refitted(graph, walk, entry.name, portsOf(graph, catalogue, node), catalogue);
  const named = renameStreamUse(renameUse(rewiredGraph, walk, entry.name, name), walk, entry.name, name);
  const body = takeApart(named, walk);
  const piece = pieceOf(body, id);
  const base = typeof piece.item === "string" ? {} : (piece.item as object);
  const made = withFields({ ...base, use: node }, { as: name === node ? null : name });
  piece.item = typeof piece.item === "string" && name === node ? node : (made as { use: string });
  const settled = settle(named, walk, body);
  return { graph: settled.graph, id: settled.idOf(piece) };
}

/** Edges of a use led to ports that it will have; those without one go. */
export function refitted(
  graph: GraphDocument,
  walk: string,
  use: string,
  ports: { inputs: readonly Port[]; outputs: readonly Port[] },
  catalogue: Catalogue,
): GraphDocument {
  const facts = factsOf(walkOf(graph, walk));
  const chosen = new Map<string, string | null>();
  const lead = (reference: string, side: "source" | "target"): string | null => {
    const key = `${side} ${reference}`;
    const known = chosen.get(key);
    if (known !== undefined) return known;
    const port = reference.slice(use.length + 1);
    const type = portType(graph, catalogue, walk, reference, side);
    const all = side === "source" ? ports.outputs : ports.inputs;
    const taken = new Set([...chosen].filter(([each]) => each.startsWith(side)).map(([, name]) => name));
    const fits = (each: Port) => (side === "source" ? accepts(type, each.type) : accepts(each.type, type)) === null;
    const same = all.find((each) => each.name === port && fits(each));
    const found =
      same ?? (type === null ? undefined : all.find((each) => !taken.has(`${use}.${each.name}`) && fits(each)));
    const made = found ? `${use}.${found.name}` : null;
    chosen.set(key, made);
    return made;
  };
  // Ports that keep their names are settled first, so that nothing else takes them.
  const ends = [...facts.routes, ...facts.merging, ...facts.heads].flatMap((route) => [
    ...(route.source.kind === "use" && route.source.name === use ? [[route.from, "source"] as const] : []),
    ...(route.target.kind === "use" && route.target.name === use ? [[route.to, "target"] as const] : []),
  ]);
  const keeps = ([reference, side]: readonly [string, "source" | "target"]) =>
    (side === "source" ? ports.outputs : ports.inputs).some((each) => `${use}.${each.name}` === reference);
  for (const [reference, side] of [...ends].sort((a, b) => Number(keeps(b)) - Number(keeps(a))))
    lead(reference, side);
  const change = (link: Link): Link[] => {
    const { from, to } = readLink(link);
    const newFrom = from.startsWith(`${use}.`) ? lead(from, "source") : from;
    const newTo = to.startsWith(`${use}.`) ? lead(to, "target") : to;
    if (newFrom === null || newTo === null) return [];
    if (newFrom === from && newTo === to) return [link];
    return [Array.isArray(link) ? [newFrom, newTo, ...link.slice(2)] : { ...link, from: newFrom, to: newTo }];
  };
  const made = changeWalk(graph, walk, (body) => {
    const before = linksOf(body);
    const after = before.flatMap(change);
    const same = after.length === before.length && after.every((link, index) => link === before[index]);
    const value = (item: Item) => mapValues(item, (from) => chosen.get(`source ${from}`) ?? from);
    const valued = withWalkPart(body, "body", mapItems(body.body, value));
    return same ? valued : withEdges(valued, after);
  });
  const merged = changeSources(made, walk, (sources) => {
    const left = sources.flatMap((source) => {
      const led = chosen.get(`source ${source}`);
      return led === null ? [] : (led ?? source);
    });
    return left.length === sources.length && left.every((source, at) => source === sources[at]) ? sources : left;
  });
  return changeLayout(merged, walkCanvas(walk), (layout) =>
    rewired(layout, (reference, side) => chosen.get(`${side} ${reference}`) ?? reference),
  );
}

// ── shared ──────────────────────────────────────────────────────────────────────────────────────

function routeAt(graph: GraphDocument, walk: string, index: number): Route {
  const route = factsOf(walkOf(graph, walk)).routes[index];
  if (!route) throw new EditRefused(strings.document.theWalkNoLongerHas);
  return route;
}

function linkAt(graph: GraphDocument, walk: string, index: number): PlainLink {
  const link = linksOf(walkOf(graph, walk))[index];
  if (link === undefined) throw new EditRefused(strings.document.theWalkNoLongerHas);
  return readLink(link);
}

function spliced<T>(list: readonly T[], index: number, count: number, ...items: T[]): T[] {
  return [...list.slice(0, index), ...items, ...list.slice(index + count)];
}

function definite<T extends object>(fields: T): Partial<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>;
}

function wire(link: Link): string {
  const { from, to } = readLink(link);
  return `${from}>${to}`;
}
