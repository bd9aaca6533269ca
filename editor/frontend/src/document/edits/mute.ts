// Items that don't run for a while: muted ones never do, bypassed ones let their values pass by. What they were is kept
// in the layout, so that it can be brought back in another session too.
import type { Catalogue } from "../../messages/answers";
import { NEVER } from "../expressions";
import { whenOf } from "../names";
import { factsOf } from "../routes";
import type { Entry } from "../tree";
import type { GraphDocument, Item, ItemId, Link, ResultFrom } from "../types";
import { joined, joinedResults, joins, sameLink } from "./parts/bridge";
import { changeWalk, entryOf, linksOf, walkOf, withEdges } from "./parts/document";
import { setItem } from "./items";
import { canvasLayout, changeLayout, walkCanvas } from "./parts/layout";
import { pieceOf, settle, takeApart } from "./parts/pieces";
import { EditRefused, mapped, withKey, withPart, withWalkPart } from "./parts/records";
import { strings } from "../../strings";

interface Muted {
  kind: "mute" | "bypass";
  /** The condition that the item had. */
  when: string | null;
  /** The item was written in the short form. */
  short: boolean;
  /** For a bypassed use: its outgoing edges, their positions, and their replacements. */
  links?: { index: number; was: Link; now: Link[] }[];
  /** Likewise results: [was, now]. */
  results?: Record<string, ResultFrom[]>;
}

/** The items that are muted or bypassed. */
export function mutedOf(graph: GraphDocument, walk: string): ReadonlyMap<ItemId, "muted" | "bypassed"> {
  const records = recordsOf(graph, walk);
  const found = factsOf(walkOf(graph, walk)).list.filter((entry) => whenOf(entry.item) === NEVER);
  return new Map(found.map(({ id }) => [id, records[id]?.kind === "bypass" ? "bypassed" : "muted"]));
}

/** Let items not run, nor anything inside them. */
export function mute(graph: GraphDocument, walk: string, ids: readonly ItemId[]): GraphDocument {
  return ids.reduce((made, id) => {
    const entry = entryOf(factsOf(walkOf(made, walk)), id);
    return whenOf(entry.item) === NEVER ? made : silenced(made, walk, entry, { kind: "mute" });
  }, graph);
}

/** Let muted items run again, under the condition that they had. */
export function unmute(graph: GraphDocument, walk: string, ids: readonly ItemId[]): GraphDocument {
  const bypassed = ids.filter((id) => recordsOf(graph, walk)[id]?.kind === "bypass");
  const rest = ids.filter((id) => !bypassed.includes(id));
  return rest.reduce((made, id) => voiced(made, walk, id), unbypass(graph, walk, bypassed));
}

/** Let uses not run, and lead what feeds them to where their values went, as far as types are equal. */
export function bypass(
  graph: GraphDocument,
  walk: string,
  ids: readonly ItemId[],
  catalogue: Catalogue = {},
): GraphDocument {
  const { byId } = factsOf(walkOf(graph, walk));
  for (const id of ids) if (byId.get(id)?.kind !== "use") throw new EditRefused(strings.document.onlySingleUsesCan);
  return ids.reduce((made, id) => {
    const entry = entryOf(factsOf(walkOf(made, walk)), id);
    return whenOf(entry.item) === NEVER ? made : passedBy(made, walk, entry, catalogue);
  }, graph);
}

/**
 * Let bypassed uses run again, on their own edges. Edges around one may lead through edges around another, so all are
 * brought back, and those that stay bypassed are led around anew; not so one that was given a condition since.
 */
export function unbypass(
  graph: GraphDocument,
  walk: string,
  ids: readonly ItemId[],
  catalogue: Catalogue = {},
): GraphDocument {
  const records = recordsOf(graph, walk);
  const bypassed = Object.keys(records).filter((id) => records[id]!.kind === "bypass");
  if (!ids.some((id) => bypassed.includes(id))) return ids.reduce((made, id) => voiced(made, walk, id), graph);
  const restored = [...bypassed]
    .reverse()
    .reduce((made, id) => voiced(rejoined(made, walk, records[id]!), walk, id), graph);
  const known = factsOf(walkOf(graph, walk)).byId;
  const silent = (id: ItemId) => known.has(id) && whenOf(known.get(id)!.item) === NEVER;
  const still = bypassed.filter((id) => !ids.includes(id) && silent(id));
  const again = bypass(restored, walk, still, catalogue);
  return ids.filter((id) => !bypassed.includes(id)).reduce((made, id) => voiced(made, walk, id), again);
}

function recordsOf(graph: GraphDocument, walk: string): Record<ItemId, Muted> {
  return (canvasLayout(graph, walkCanvas(walk)).muted ?? {}) as Record<ItemId, Muted>;
}

function silenced(
  graph: GraphDocument,
  walk: string,
  entry: Entry,
  more: Pick<Muted, "kind" | "links" | "results">,
): GraphDocument {
  const short = typeof entry.item === "string" || Array.isArray(entry.item);
  const record: Muted = { ...more, when: whenOf(entry.item), short };
  const made = setItem(graph, walk, entry.id, { when: NEVER });
  return changeLayout(made, walkCanvas(walk), (layout) =>
    withPart(layout, "muted", { ...layout.muted, [entry.id]: record }),
  );
}

function voiced(graph: GraphDocument, walk: string, id: ItemId): GraphDocument {
  const record = recordsOf(graph, walk)[id];
  const entry = factsOf(walkOf(graph, walk)).byId.get(id);
  const forgotten = changeLayout(graph, walkCanvas(walk), (layout) =>
    layout.muted ? withPart(layout, "muted", withKey(layout.muted, id, undefined)) : layout,
  );
  if (!entry || whenOf(entry.item) !== NEVER) return forgotten;
  if (!record || record.short || record.when !== null)
    return setItem(forgotten, walk, id, { when: record?.when ?? null });
  const body = takeApart(forgotten, walk);
  const piece = pieceOf(body, id);
  piece.item = withKey(piece.item as object, "when", undefined) as Item;
  return settle(forgotten, walk, body).graph;
}

function passedBy(graph: GraphDocument, walk: string, entry: Entry, catalogue: Catalogue): GraphDocument {
  const found = joins(graph, walk, entry.name, catalogue);
  const results = joinedResults(graph, walk, entry.name, catalogue);
  const made = joined(graph, walk, found, results);
  const more = { ...(found.length ? { links: found } : {}), ...(Object.keys(results).length ? { results } : {}) };
  return silenced(made, walk, entryOf(factsOf(walkOf(made, walk)), entry.id), { kind: "bypass", ...more });
}

/** The edges of a bypassed use where those that replaced them still are. */
function rejoined(graph: GraphDocument, walk: string, record: Muted): GraphDocument {
  return changeWalk(graph, walk, (body) => {
    // In their order, so that each one's index is right once those before it are back.
    const edges = (record.links ?? []).reduce(rejoin, linksOf(body));
    const results = mapped(body.results ?? {}, (result, name) => {
      const [was, now] = record.results?.[name] ?? [];
      return was !== undefined && JSON.stringify(now) === JSON.stringify(result) ? was : result;
    });
    return withEdges(body.results ? withWalkPart(body, "results", results) : body, edges);
  });
}

function rejoin(
  edges: readonly Link[],
  { index, was, now }: { index: number; was: Link; now: Link[] },
): readonly Link[] {
  const isNow = (link: Link) => now.some((other) => sameLink(link, other));
  if (!now.length) return [...edges.slice(0, index), was, ...edges.slice(index)];
  const first = edges.findIndex(isNow);
  return first < 0 ? edges : edges.flatMap((link, at) => (at === first ? [was] : isNow(link) ? [] : [link]));
}
