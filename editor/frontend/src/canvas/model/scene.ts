// One Walk as its pieces and wires are made from it: the part that is shown, its routes, and what its references name. Pure.
import { mutedOf } from "../../document/edits/mute";
import { readLink, readResult, type PlainLink } from "../../document/names";
import { portType as typeOf } from "../../document/ports";
import { exclusive, factsOf, isInside, type Facts, headId } from "../../document/routes";
import { isLoop, flat, type Entry } from "../../document/tree";
import type { CanvasLayout, GraphDocument, ItemId, Walk } from "../../document/types";
import type { Catalogue, Problem } from "../../messages/answers";
import { owner, portName } from "./ports";
import { previewing } from "./previews";
import { Located } from "./problems";

export interface Shown {
  graph: GraphDocument;
  catalogue: Catalogue;
  problems: readonly Problem[];
  layout: CanvasLayout;
  /** Node -> ranks; nothing unless the rank lens is on. */
  ranks: ReadonlyMap<string, number[]>;
}

/** Data that all builders of one Walk's pieces read. */
export interface Scene extends Shown {
  name: string;
  walk: Walk;
  entries: readonly Entry[];
  edges: PlainLink[];
  /** All that carries a value within the Walk: its edges, and those into merges and heads. */
  links: readonly PlainLink[];
  /** The innermost piece on the canvas that shows an entry: itself, or the closed container around it. */
  seen: Map<ItemId, ItemId>;
  facts: Facts;
  uses: ReadonlyMap<string, Entry>;
  wired: ReadonlySet<string>;
  located: Located;
  muted: ReadonlyMap<ItemId, "muted" | "bypassed">;
  pointer: string;
  inside: ItemId | null;
  /** Nodes that show what they send. */
  shows: ReadonlySet<string>;
}

export function sceneOf(shown: Shown, name: string, walk: Walk, inside: ItemId | null): Scene {
  const facts = factsOf(walk);
  const all = facts.list;
  const root = inside ? all.find((entry) => entry.id === inside) : undefined;
  const listed = root ? flat(root.children) : all;
  const closed = new Set((shown.layout.closed ?? []).filter((id) => id !== root?.id));
  const seen = new Map<ItemId, ItemId>();
  for (const entry of listed) {
    let at = entry.id;
    for (let up = entry.parent; up && up.id !== root?.id; up = up.parent) if (closed.has(up.id)) at = up.id;
    seen.set(entry.id, at);
  }
  const edges = (walk.edges ?? []).map(readLink);
  const links = [...edges, ...facts.merging, ...facts.heads];
  const results = Object.values(walk.results ?? {}).map((result) => readResult(result).from);
  const sent = (shown.graph.streams ?? [])
    .filter((stream) => stream.walks.includes(name))
    .map((stream) => stream.from);
  const wired = new Set([
    ...links.flatMap((edge) => [`>${edge.to}`, `<${edge.from}`]),
    ...[...results, ...sent].map((ref) => `<${ref}`),
  ]);
  const pointer = `/walks/${name}`;
  const located = new Located(shown.problems);
  return {
    ...shown,
    name,
    walk,
    entries: listed,
    edges,
    links,
    seen,
    facts,
    uses: facts.uses,
    wired,
    located,
    pointer,
    inside: root?.id ?? null,
    muted: mutedOf(shown.graph, name),
    shows: previewing(shown.graph, shown.catalogue),
  };
}

export function wiredRefs(scene: Scene, side: "<" | ">"): Set<string> {
  return new Set([...scene.wired].filter((ref) => ref.startsWith(side)).map((ref) => ref.slice(1)));
}

/** The declared type of a reference of this Walk; empty where nothing declares it. */
export function portType(scene: Scene, ref: string, kind: "inputs" | "outputs"): string {
  const side = kind === "inputs" ? "target" : "source";
  return typeOf(scene.graph, scene.catalogue, scene.name, ref, side) ?? "";
}

export function isMissing(scene: Scene, ref: string, end: "from" | "to"): boolean {
  const who = owner(ref);
  if (end === "to") return who !== "@out" && !scene.uses.has(who);
  if (who === "@loop") return !isLoopOf(scene.facts, portName(ref));
  if (who === "@merge") return !scene.facts.merges.has(portName(ref));
  return who !== "@in" && who !== "@stream" && !scene.uses.has(who);
}

function isLoopOf({ list }: Facts, name: string): boolean {
  return name === "index" || list.some((entry) => isLoop(entry.kind) && entry.name === name);
}

/** The piece that shows a merge: itself, or the closed container around it; null: it is out of sight. */
export function mergePiece(scene: Scene, name: string): string | null {
  const choice = scene.facts.merges.get(name)?.choice;
  if (!choice) return scene.inside === null && choice === null ? `merge:${name}` : null;
  const seen = scene.seen.get(choice.id);
  if (seen === undefined) return null;
  return seen === choice.id ? `merge:${name}` : seen;
}

/**
 * True if what a reference names stands inside an item: a merge stands beside the choice that it comes out of, and the
 * index of a loop in it. `target`: where the value goes, which says what `@loop.index` names.
 */
export function standsIn(scene: Scene, ref: string, holder: Entry, target = ""): boolean {
  const [who, name] = [owner(ref), portName(ref)];
  if (who === "@merge") {
    const choice = scene.facts.merges.get(name)?.choice;
    return choice != null && choice !== holder && isInside(choice, holder);
  }
  const other = who === "@loop" && target ? loopPiece(scene, ref, target) : headId(ref);
  const entry = other === null ? scene.uses.get(who) : scene.facts.byId.get(other);
  return entry !== undefined && isInside(entry, holder);
}

/** The uses that don't run in the same turn as this item does. */
export function exclusiveUses(scene: Scene, entry: Entry): Entry[] {
  return [...scene.uses.values()].filter((other) => exclusive(entry, other));
}

/** The loop or map that `@loop.NAME` names; `@loop.index` is judged per edge. */
export function loopPiece(scene: Scene, ref: string, target = ""): ItemId | null {
  const name = portName(ref);
  const user = scene.uses.get(owner(target));
  const wanted = name === "index" ? user?.loops.at(-1) : name;
  if (name === "index" && !target) return "@loop";
  return scene.entries.find((entry) => isLoop(entry.kind) && entry.name === wanted)?.id ?? null;
}
