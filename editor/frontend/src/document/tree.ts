// A Walk's body as a tree of entries with stable ids, whatever shorthand the author used. Pure.
import type { Item, ItemId, Pointer, Walk } from "./types";

export type ItemKind = "use" | "loop" | "parallel" | "sequence" | "fork" | "unknown";

export interface Entry {
  id: ItemId;
  kind: ItemKind;
  item: Item;
  /** The use's or loop's name; empty for what has none. */
  name: string;
  /** For a use, the node that it calls. */
  node: string;
  /** In the Walk as the author wrote it (`/body/0/body/1`). */
  pointer: Pointer;
  parent: Entry | null;
  /** Position in the list that holds it. */
  index: number;
  /** Program order over all uses and forks of the Walk; of a container that of its first one. */
  order: number;
  /** Names of the loops around it, outermost first. */
  loops: string[];
  children: Entry[];
}

export const CHILD_KEYS = { loop: "body", parallel: "parallel", sequence: "sequence" } as const;

export function kindOf(item: Item): ItemKind {
  if (typeof item === "string") return "use";
  if (Array.isArray(item)) return "sequence";
  if (typeof item !== "object" || item === null) return "unknown";
  for (const kind of ["use", "parallel", "sequence", "loop", "fork"] as const) if (kind in item) return kind;
  return "unknown";
}

/** The items directly inside; empty for what holds none. */
export function childrenOf(item: Item): readonly Item[] {
  if (Array.isArray(item)) return item;
  const kind = kindOf(item);
  if (kind !== "loop" && kind !== "parallel" && kind !== "sequence") return [];
  const found = (item as unknown as Record<string, unknown>)[CHILD_KEYS[kind]];
  return Array.isArray(found) ? (found as Item[]) : [];
}

export function isContainer(kind: ItemKind): boolean {
  return kind === "loop" || kind === "parallel" || kind === "sequence";
}

/** The entries at the top of a Walk's body, in order; their descendants hang below. */
export function entries(walk: Walk): Entry[] {
  const seen = new Map<string, number>();
  let order = 0;
  const read = (items: readonly Item[], at: Pointer, parent: Entry | null, loops: string[]): Entry[] =>
    items.map((item, index) => {
      const kind = kindOf(item);
      const name = nameOf(item, kind);
      const base = name ? `${kind}:${name}` : kind;
      const number = seen.get(base) ?? 0;
      seen.set(base, number + 1);
      const id = name ? (number ? `${base}#${number}` : base) : `${base}:${number}`;
      const pointer = `${at}/${index}`;
      const node = kind === "use" ? (typeof item === "string" ? item : (item as { use: string }).use) : "";
      const entry: Entry = { id, kind, item, name, node, pointer, parent, index, order, loops, children: [] };
      if (!isContainer(kind)) order += 1;
      const inside = Array.isArray(item) || !isContainer(kind) ? pointer : `${pointer}/${CHILD_KEYS[kind as "loop"]}`;
      entry.children = read(childrenOf(item), inside, entry, kind === "loop" ? [...loops, name] : loops);
      return entry;
    });
  return read(Array.isArray(walk.body) ? walk.body : [], "/body", null, []);
}

/** Every entry of a tree, parents before their children, in program order. */
export function flat(tree: readonly Entry[]): Entry[] {
  return tree.flatMap((entry) => [entry, ...flat(entry.children)]);
}

export function find(tree: readonly Entry[], id: ItemId): Entry | undefined {
  return flat(tree).find((entry) => entry.id === id);
}

function nameOf(item: Item, kind: ItemKind): string {
  if (typeof item === "string") return item;
  if (kind === "use") {
    const use = item as { use: string; as?: string | null };
    return use.as ?? use.use;
  }
  return kind === "loop" ? String((item as { loop: unknown }).loop) : "";
}
