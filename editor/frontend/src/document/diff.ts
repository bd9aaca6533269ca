// Differences between two graphs, by part. Shorthand, the order of keys, omitted defaults and the layout make
// no difference.
import { readLink, readResult } from "./names";
import { join } from "./pointer";
import { factsOf } from "./routes";
import { CHILD_KEYS, type Entry } from "./tree";
import type { Choose, GraphDocument, Pointer, Walk } from "./types";
import { perObject } from "./perObject";
import { strings } from "../strings";

export type DifferenceKind = "added" | "removed" | "changed";
export type DifferenceWhat =
  | "graph"
  | "weights"
  | "state"
  | "node"
  | "walk"
  | "input"
  | "item"
  | "edge"
  | "merge"
  | "result"
  | "stream"
  | "task";

export interface Difference {
  kind: DifferenceKind;
  what: DifferenceWhat;
  /** The part's name; of an edge `a.x → b.y`. */
  name: string;
  /** Into the graph after; of what was removed, into the one before. */
  pointer: Pointer;
  /** The Walk that it is in. */
  walk?: string;
  before?: unknown;
  after?: unknown;
  /** One line for people. */
  text: string;
}

type Plain = Record<string, unknown>;

export function equal(a: GraphDocument, b: GraphDocument): boolean {
  return a === b || same(normal(a), normal(b));
}

/** Differences in the order of the document: what is gone stands where it was looked for. */
export function diff(before: GraphDocument, after: GraphDocument): Difference[] {
  if (equal(before, after)) return [];
  return [
    ...headings(before, after),
    ...named("weights", "weights", before.weights, after.weights),
    ...named("state", "states", before.states, after.states),
    ...named("node", "nodes", before.nodes, after.nodes),
    ...walks(before, after),
    ...streams(before, after),
    ...named("task", "tasks", before.tasks, after.tasks),
    ...others(before, after),
  ];
}

const PARTS = ["format", "name", "description", "weights", "states", "nodes", "walks", "streams", "tasks", "layout"];

function headings(before: GraphDocument, after: GraphDocument): Difference[] {
  return (["name", "description"] as const).flatMap((key) => {
    const [was, is] = [before[key] ?? "", after[key] ?? ""];
    if (was === is) return [];
    return [changed("graph", key, join(key), was, is, strings.document.theGraphsChanged(key))];
  });
}

/** Fields that this editor doesn't know. */
function others(before: GraphDocument, after: GraphDocument): Difference[] {
  const keys = new Set([...Object.keys(before), ...Object.keys(after)].filter((key) => !PARTS.includes(key)));
  return [...keys].flatMap((key) =>
    compared(
      "graph",
      key,
      join(key),
      (before as unknown as Plain)[key],
      (after as unknown as Plain)[key],
      strings.document.field(key),
    ),
  );
}

function named(
  what: DifferenceWhat,
  section: string,
  before: object | undefined,
  after: object | undefined,
  walk?: string,
): Difference[] {
  const [was, is] = [(before ?? {}) as Plain, (after ?? {}) as Plain];
  const at = walk === undefined ? [section] : ["walks", walk, section];
  const keys = new Set([...Object.keys(is), ...Object.keys(was)]);
  return [...keys].flatMap((name) =>
    compared(what, name, join(...at, name), was[name], is[name], `${TITLES[what]} \`${name}\``, walk),
  );
}

const TITLES: Record<DifferenceWhat, string> = {
  graph: strings.document.theGraph,
  weights: strings.document.weights,
  state: strings.document.state,
  node: strings.document.node,
  walk: strings.document.walk,
  input: strings.document.input,
  item: strings.document.item,
  edge: strings.document.edge,
  merge: strings.document.merge,
  result: strings.document.result,
  stream: strings.document.stream,
  task: strings.document.task,
};

function walks(before: GraphDocument, after: GraphDocument): Difference[] {
  const [was, is] = [before.walks ?? {}, after.walks ?? {}];
  const names = new Set([...Object.keys(is), ...Object.keys(was)]);
  return [...names].flatMap((name) => {
    const [old, made] = [was[name], is[name]];
    if (!old || !made)
      return compared("walk", name, join("walks", name), old, made, strings.document.walkWithName(name));
    return old === made ? [] : inWalk(name, old, made);
  });
}

function inWalk(walk: string, before: Walk, after: Walk): Difference[] {
  const rest = (body: Walk): Plain => {
    const { inputs: _i, body: _b, edges: _e, merges: _m, results: _r, ...others } = body;
    return others as Plain;
  };
  const title = strings.document.walkWithWalk(walk);
  return [
    ...compared("walk", walk, join("walks", walk), rest(before), rest(after), title),
    ...named("input", "inputs", before.inputs, after.inputs, walk),
    ...items(walk, before, after),
    ...edges(walk, before, after),
    ...named("merge", "merges", before.merges, after.merges, walk),
    ...named("result", "results", mapResults(before), mapResults(after), walk),
  ];
}

function mapResults(walk: Walk): Plain {
  return Object.fromEntries(
    Object.entries(walk.results ?? {}).map(([name, result]) => [
      name,
      typeof result === "object" ? result : readResult(result),
    ]),
  );
}

function streams(before: GraphDocument, after: GraphDocument): Difference[] {
  const [was, is] = [before.streams ?? [], after.streams ?? []];
  const names = new Set([...is, ...was].map((stream) => stream.name));
  return [...names].flatMap((name) => {
    const [old, made] = [was, is].map((list) => list.findIndex((stream) => stream.name === name));
    const pointer = join("streams", made! >= 0 ? made! : old!);
    return compared("stream", name, pointer, was[old!], is[made!], strings.document.streamWithName(name));
  });
}

// ── a Walk's items and edges ────────────────────────────────────────────────────────────────────

function items(walk: string, before: Walk, after: Walk): Difference[] {
  const [was, is] = [factsOf(before), factsOf(after)];
  const moved = movedIds(was.list, is.list);
  const found = is.list.flatMap((entry): Difference[] => {
    const old = was.byId.get(entry.id);
    const pointer = join("walks", walk) + entry.pointer;
    const title = titleOf(entry);
    if (!old) return [ofItem("added", entry, walk, { after: entry.item, text: strings.document.wasAdded(title) })];
    const own = compared("item", entry.name || entry.id, pointer, ownFields(old), ownFields(entry), title, walk);
    if (own.length || !moved.has(entry.id)) return own;
    const place =
      entry.parent?.id !== old.parent?.id
        ? strings.document.moved(entry.parent ? titleOf(entry.parent) : strings.document.theWalkItself)
        : strings.document.movedWithinTheOrder;
    const [from, to] = [old, entry].map((each) => ({ in: each.parent?.id ?? null, index: each.index }));
    return [ofItem("changed", entry, walk, { before: from, after: to, text: `${title} ${place}` })];
  });
  const gone = was.list.filter((entry) => !is.byId.has(entry.id));
  return [
    ...found,
    ...gone.map((entry) =>
      ofItem("removed", entry, walk, { before: entry.item, text: strings.document.wasRemoved(titleOf(entry)) }),
    ),
  ];
}

function ofItem(
  kind: DifferenceKind,
  entry: Entry,
  walk: string,
  said: Pick<Difference, "before" | "after" | "text">,
): Difference {
  const pointer = join("walks", walk) + entry.pointer;
  return { kind, what: "item", name: entry.name || entry.id, pointer, walk, ...said };
}

/** Items that stand elsewhere: in another container, or out of the order that the others keep. */
function movedIds(before: readonly Entry[], after: readonly Entry[]): Set<string> {
  const position = new Map(before.map((entry, index) => [entry.id, index]));
  const parents = new Map(before.map((entry) => [entry.id, entry.parent?.id]));
  const common = after.filter((entry) => position.has(entry.id));
  const moved = new Set(common.filter((entry) => parents.get(entry.id) !== entry.parent?.id).map(({ id }) => id));
  const order = common.filter(({ id }) => !moved.has(id)).map(({ id }) => ({ id, at: position.get(id)! }));
  // The longest run that kept its order stays; lengths[i] is that of the longest one ending at i.
  const lengths: number[] = [];
  const previous: number[] = [];
  order.forEach(({ at }, index) => {
    lengths[index] = 1;
    previous[index] = -1;
    for (let other = 0; other < index; other += 1)
      if (order[other]!.at < at && lengths[other]! >= lengths[index]!) {
        lengths[index] = lengths[other]! + 1;
        previous[index] = other;
      }
  });
  const kept = new Set<string>();
  for (let at = lengths.indexOf(Math.max(0, ...lengths)); at >= 0; at = previous[at]!) kept.add(order[at]!.id);
  for (const { id } of order) if (!kept.has(id)) moved.add(id);
  return moved;
}

function titleOf(entry: Entry): string {
  if (entry.kind === "use") return `\`${entry.name}\``;
  if (entry.kind === "loop") return strings.document.loop(entry.name);
  if (entry.kind === "map") return strings.document.map(entry.name);
  if (entry.kind === "fork") return strings.document.fork((entry.item as { fork: string }).fork);
  if (entry.kind === "case") return strings.document.theCase(entry.name);
  return entry.kind === "unknown" ? strings.document.anUnknownItem : strings.document.aKind(entry.kind);
}

function ownFields(entry: Entry): unknown {
  const { item, kind } = entry;
  if (typeof item === "string") return { use: item };
  if (typeof item !== "object" || item === null || kind === "unknown") return item;
  if (Array.isArray(item)) return {};
  if (kind === "choose") {
    const { cases: _c, otherwise: _o, ...fields } = item as Choose;
    return fields;
  }
  const key = CHILD_KEYS[kind as keyof typeof CHILD_KEYS];
  return Object.fromEntries(Object.entries(item).filter(([name]) => name !== key));
}

function edges(walk: string, before: Walk, after: Walk): Difference[] {
  const keyed = (body: Walk) => {
    const found = new Map<string, { link: unknown; index: number }>();
    (Array.isArray(body.edges) ? body.edges : []).forEach((link, index) => {
      const { from, to } = readLink(link);
      const key = `${from} → ${to}`;
      const plain = Array.isArray(link) ? { from, to } : link;
      found.set(found.has(key) ? `${key} #${index}` : key, { link: plain, index });
    });
    return found;
  };
  const [was, is] = [keyed(before), keyed(after)];
  const names = new Set([...is.keys(), ...was.keys()]);
  return [...names].flatMap((name) => {
    const [old, made] = [was.get(name), is.get(name)];
    const pointer = join("walks", walk, "edges", (made ?? old)!.index);
    return compared("edge", name, pointer, old?.link, made?.link, strings.document.edgeWithName(name), walk);
  });
}

// ── comparing ───────────────────────────────────────────────────────────────────────────────────

function compared(
  what: DifferenceWhat,
  name: string,
  pointer: Pointer,
  before: unknown,
  after: unknown,
  title: string,
  walk?: string,
): Difference[] {
  const more = walk === undefined ? {} : { walk };
  if (before === undefined && after === undefined) return [];
  if (before === undefined)
    return [{ kind: "added", what, name, pointer, ...more, after, text: strings.document.wasAdded(title) }];
  if (after === undefined)
    return [{ kind: "removed", what, name, pointer, ...more, before, text: strings.document.wasRemoved(title) }];
  const [was, is] = [plain(before), plain(after)];
  if (same(was, is)) return [];
  return [{ ...changed(what, name, pointer, before, after, `${title}: ${fields(was, is)}`), ...more }];
}

function changed(
  what: DifferenceWhat,
  name: string,
  pointer: Pointer,
  before: unknown,
  after: unknown,
  text: string,
): Difference {
  return { kind: "changed", what, name, pointer, before, after, text };
}

/** A short description of the change. */
function fields(before: unknown, after: unknown): string {
  const found = leaves(before, after, "");
  const [first] = found;
  if (found.length === 1 && first) return `${first.path || "it"} ${brief(first.before)} → ${brief(first.after)}`;
  const names = [...new Set(found.map(({ path }) => path || "it"))];
  return strings.document.changed(
    names.slice(0, 3).join(", "),
    names.length > 3 ? strings.document.andMore(names.length - 3) : "",
  );
}

function leaves(before: unknown, after: unknown, path: string): { path: string; before: unknown; after: unknown }[] {
  if (same(before, after)) return [];
  if (!isRecord(before) || !isRecord(after)) return [{ path, before, after }];
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...keys].flatMap((key) => leaves(before[key], after[key], path ? `${path}.${key}` : key));
}

function brief(value: unknown): string {
  if (value === undefined) return strings.document.notSet;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 40 ? `${text.slice(0, 39)}…` : text;
}

/** A graph without its layout, in one form. */
const normal = perObject((graph: GraphDocument): Plain => {
  const { layout: _, format: _f, ...rest } = graph;
  const expanded: Plain = { ...rest };
  if (isRecord(graph.walks))
    expanded["walks"] = Object.fromEntries(
      Object.entries(graph.walks).map(([name, walk]) => [name, isRecord(walk) ? expandedWalk(walk as Walk) : walk]),
    );
  return plain(expanded) as Plain;
});

function expandedWalk(walk: Walk): Plain {
  const item = (value: unknown): unknown => {
    if (typeof value === "string") return { use: value };
    if (Array.isArray(value)) return { sequence: value.map(item) };
    if (!isRecord(value)) return value;
    if ("choose" in value) return expandedChoice(value, item);
    const key = Object.values(CHILD_KEYS).find((name) => Array.isArray(value[name]));
    return key ? { ...value, [key]: (value[key] as unknown[]).map(item) } : value;
  };
  const made: Plain = { ...walk };
  if (Array.isArray(walk.body)) made["body"] = walk.body.map(item);
  if (Array.isArray(walk.edges))
    made["edges"] = walk.edges.map((link) =>
      Array.isArray(link) && link.length === 2 ? { from: link[0], to: link[1] } : link,
    );
  if (isRecord(walk.results)) made["results"] = mapResults(walk);
  return made;
}

function expandedChoice(choice: Plain, item: (value: unknown) => unknown): Plain {
  const list = (value: unknown) => (Array.isArray(value) ? value.map(item) : value);
  const { cases, otherwise } = choice;
  const named = isRecord(cases) ? Object.fromEntries(Object.entries(cases).map(([k, v]) => [k, list(v)])) : cases;
  return { ...choice, cases: named, otherwise: list(otherwise) };
}

const OPTIONAL = new Set([
  "merges",
  "weights",
  "states",
  "nodes",
  "walks",
  "streams",
  "tasks",
  "inputs",
  "edges",
  "results",
  "params",
  "choices",
  "with",
]);
const FLAGS = new Set(["each", "collect", "drop_last", "many", "optional"]);
const TEXTS = new Set(["label", "description"]);

/** Without what says nothing: nulls, flags that aren't set, empty optional parts. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain);
  if (!isRecord(value)) return value;
  const entries = Object.entries(value).flatMap(([key, child]): [string, unknown][] => {
    if (child === undefined || child === null) return [];
    if ((FLAGS.has(key) && child === false) || (TEXTS.has(key) && child === "")) return [];
    if ((key === "width" && child === "1") || (key === "as" && child === value["use"])) return [];
    if (OPTIONAL.has(key) && typeof child === "object" && !Object.keys(child).length) return [];
    return [[key, plain(child)]];
  });
  return Object.fromEntries(entries);
}

function isRecord(value: unknown): value is Plain {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Deep; keys in any order. */
function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (Array.isArray(a))
    return Array.isArray(b) && a.length === b.length && a.every((child, index) => same(child, b[index]));
  if (!isRecord(a) || !isRecord(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => key in b && same(a[key], b[key]));
}
