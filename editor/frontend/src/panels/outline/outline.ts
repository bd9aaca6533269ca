// The document as rows of a tree: Walks with their bodies, components, streams, tasks. Pure.
import type { Problem } from "../../messages/answers";
import type { Place } from "../../document/edits/items";
import { outputsOf } from "../../document/edits/walks";
import { isUnder } from "../../document/pointer";
import { entries, find, flat, isBranch, headOf, takesItems, type Entry } from "../../document/tree";
import type { GraphDocument, ItemId, Pointer, Walk } from "../../document/types";
import type { Canvas, View } from "../../store/types";
import { strings } from "../../strings";

export interface Row {
  /** Unique in the tree: `walk:decode`, `walk:decode/use:llm`, `node:llm`. */
  key: string;
  parent: string | null;
  level: number;
  kind: string;
  label: string;
  /** After the label, fainter: a Walk's label, a node's component. */
  detail: string;
  times: string;
  when: string;
  expandable: boolean;
  pointer: Pointer;
  walk: string | null;
  /** Set for an item of a Walk's body. */
  item: ItemId | null;
  /** The target that selecting it shows; null for headings. */
  canvas: Canvas | null;
  /** The id to select there; null: nothing but the canvas. */
  id: string | null;
}

/** Every row, closed ones' children too, parents before their children. */
export function rowsOf(graph: GraphDocument): Row[] {
  const rows: Row[] = [];
  const heading = (key: string, label: string, count: number) =>
    rows.push({ ...EMPTY, key, kind: key, label, detail: String(count), expandable: count > 0, pointer: `/${key}` });
  const walks = Object.entries(graph.walks ?? {});
  heading("walks", strings.panels.walks, walks.length);
  for (const [name, walk] of walks) rows.push(...walkRows(name, walk));
  const nodes = Object.entries(graph.nodes ?? {});
  heading("nodes", strings.panels.components, nodes.length);
  for (const [name, node] of nodes)
    rows.push({
      ...leaf("nodes", "node", name, `/nodes/${escape(name)}`),
      detail: node.component,
      id: `node:${name}`,
    });
  const streams = graph.streams ?? [];
  if (streams.length) heading("streams", strings.panels.streams, streams.length);
  streams.forEach((stream, index) =>
    rows.push({
      ...leaf("streams", "stream", stream.name, `/streams/${index}`),
      detail: stream.from,
      id: `stream:${stream.name}`,
    }),
  );
  const tasks = Object.entries(graph.tasks ?? {});
  heading("tasks", strings.panels.tasks, tasks.length);
  for (const [name, task] of tasks)
    rows.push({
      ...leaf("tasks", "task", name, `/tasks/${escape(name)}`),
      detail: task.label ?? "",
      canvas: null,
      id: `task:${name}`,
    });
  return rows;
}

const EMPTY: Row = {
  key: "",
  parent: null,
  level: 1,
  kind: "",
  label: "",
  detail: "",
  times: "",
  when: "",
  expandable: false,
  pointer: "",
  walk: null,
  item: null,
  canvas: null,
  id: null,
};

function leaf(parent: string, kind: string, label: string, pointer: Pointer): Row {
  const canvas: Canvas = { kind: "components" };
  return { ...EMPTY, key: `${kind}:${label}`, parent, level: 2, kind, label, pointer, canvas };
}

function walkRows(name: string, walk: Walk): Row[] {
  const pointer = `/walks/${escape(name)}`;
  const canvas: Canvas = { kind: "walk", walk: name, inside: null };
  const own = { ...EMPTY, walk: name, canvas };
  const key = `walk:${name}`;
  const inputs = Object.keys(walk.inputs ?? {});
  const outputs = [...outputsOf(walk), ...Object.keys(walk.results ?? {})];
  const rows: Row[] = [];
  if (inputs.length)
    rows.push({
      ...side(own, key, "in", inputs),
      label: strings.panels.inputs,
      pointer: `${pointer}/inputs`,
      id: "@in",
    });
  for (const entry of flat(entries(walk))) rows.push(itemRow(own, key, pointer, entry));
  for (const [merge, sources] of Object.entries(walk.merges ?? {}))
    rows.push({
      ...own,
      key: `${key}/merge:${merge}`,
      parent: key,
      level: 3,
      kind: "merge",
      label: merge,
      detail: Array.isArray(sources) ? sources.join(", ") : "",
      pointer: `${pointer}/merges/${escape(merge)}`,
      id: `merge:${merge}`,
    });
  if (outputs.length)
    rows.push({
      ...side(own, key, "out", outputs),
      label: strings.panels.outputs,
      pointer: `${pointer}/results`,
      id: "@out",
    });
  const first: Row = {
    ...own,
    key,
    parent: "walks",
    level: 2,
    kind: "walk",
    label: name,
    detail: walk.label ?? "",
    expandable: rows.length > 0,
    pointer,
  };
  return [first, ...rows];
}

function side(own: Row, parent: string, kind: "in" | "out", names: string[]): Row {
  return { ...own, key: `${parent}/@${kind}`, parent, level: 3, kind, detail: names.join(", ") };
}

function itemRow(own: Row, walk: string, pointer: Pointer, entry: Entry): Row {
  const item = entry.item as unknown as Record<string, unknown>;
  const text = (key: string) => (typeof item === "object" && typeof item[key] === "string" ? item[key] : "");
  const label =
    entry.kind === "fork"
      ? `${text("fork")} → ${text("into")}`
      : entry.name || LABELS[entry.kind] || strings.panels.unknownItem;
  return {
    ...own,
    key: `${walk}/${entry.id}`,
    parent: entry.parent ? `${walk}/${entry.parent.id}` : walk,
    level: 3 + depth(entry),
    kind: entry.kind,
    label,
    detail: entry.kind === "use" && entry.node !== entry.name ? entry.node : headOf(entry.item),
    times: entry.kind === "loop" ? text("times") : entry.kind === "map" ? text("bound") : "",
    when: text("when"),
    expandable: entry.children.length > 0,
    pointer: pointer + entry.pointer,
    item: entry.id,
    id: entry.id,
  };
}

const LABELS: Partial<Record<Entry["kind"], string>> = {
  parallel: strings.panels.parallel,
  sequence: strings.panels.sequence,
  choose: strings.panels.choice,
  otherwise: strings.panels.otherwise,
};

function depth(entry: Entry): number {
  return entry.parent ? depth(entry.parent) + 1 : 0;
}

function escape(name: string): string {
  return name.replace(/~/g, "~0").replace(/\//g, "~1");
}

/** The rows to show, given which of the expandable ones are open. */
export function visible(rows: readonly Row[], open: ReadonlySet<string>): Row[] {
  const shown = new Set<string>();
  return rows.filter((row) => {
    const seen = row.parent === null || (shown.has(row.parent) && open.has(row.parent));
    if (seen) shown.add(row.key);
    return seen;
  });
}

export function isSelected(row: Row, view: View): boolean {
  if (row.kind === "task") return view.tab === "tasks" && view.selection.includes(row.id!);
  if (view.tab !== "graph" || row.canvas === null || row.canvas.kind !== view.canvas.kind) return false;
  if (row.canvas.kind === "walk" && view.canvas.kind === "walk" && row.canvas.walk !== view.canvas.walk) return false;
  return row.id === null ? view.selection.length === 0 : view.selection.includes(row.id);
}

/** The keys above a row, innermost first. */
export function above(rows: readonly Row[], key: string): string[] {
  const parents = new Map(rows.map((row) => [row.key, row.parent]));
  const found: string[] = [];
  for (let at = parents.get(key) ?? null; at !== null; at = parents.get(at) ?? null) found.push(at);
  return found;
}

/** Problems at the deepest of the shown rows that holds them. */
export function problemsByRow(rows: readonly Row[], problems: readonly Problem[]): Map<string, Problem[]> {
  const found = new Map<string, Problem[]>();
  for (const problem of problems) {
    const holding = rows.filter((row) => isUnder(problem.pointer, row.pointer));
    const deepest = holding.sort((a, b) => b.pointer.length - a.pointer.length)[0];
    if (deepest) found.set(deepest.key, [...(found.get(deepest.key) ?? []), problem]);
  }
  return found;
}

export type Direction = "up" | "down" | "out" | "in";

/** Where an item goes by one step of the keyboard; null where there is no such place. */
export function stepOf(walk: Walk, id: ItemId, direction: Direction): Place | null {
  const tree = entries(walk);
  const entry = find(tree, id);
  if (!entry) return null;
  const siblings = entry.parent ? entry.parent.children : tree;
  const parent = entry.parent?.id ?? null;
  switch (direction) {
    case "up":
      return entry.index > 0 ? { parent, index: entry.index - 1 } : null;
    case "down":
      return entry.index < siblings.length - 1 ? { parent, index: entry.index + 2 } : null;
    case "out": {
      // Out of a branch is out of its choice.
      const holder = entry.parent && isBranch(entry.parent.kind) ? entry.parent.parent : entry.parent;
      return holder ? { parent: holder.parent?.id ?? null, index: holder.index + 1 } : null;
    }
    case "in": {
      const before = siblings[entry.index - 1];
      const held = before && holderIn(before, "last");
      if (held) return { parent: held.id, index: held.children.length };
      const after = siblings[entry.index + 1];
      const taking = after && holderIn(after, "first");
      return taking ? { parent: taking.id, index: 0 } : null;
    }
  }
}

/** The place that takes items at an entry: itself, or one of the branches of a choice. */
function holderIn(entry: Entry, which: "first" | "last"): Entry | null {
  if (entry.kind === "choose") return entry.children.at(which === "first" ? 0 : -1) ?? null;
  return takesItems(entry.kind) ? entry : null;
}

/** Where a dragged item lands over a row: in its upper part before it, in its lower part after; in a container inside. */
export function dropOf(walk: Walk, over: ItemId, part: "before" | "inside" | "after"): Place | null {
  const entry = find(entries(walk), over);
  if (!entry) return null;
  const holder = holderIn(entry, "first");
  if (part === "inside" && holder) return { parent: holder.id, index: 0 };
  // Beside a branch is nothing: what is dropped there goes into it.
  if (isBranch(entry.kind)) return { parent: entry.id, index: part === "after" ? entry.children.length : 0 };
  return { parent: entry.parent?.id ?? null, index: entry.index + (part === "after" ? 1 : 0) };
}
