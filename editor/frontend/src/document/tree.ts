// A Walk's body as a tree of entries with stable ids, whatever shorthand the author used. Pure.
import { join } from "./pointer";
import type { Choose, Item, ItemId, Pointer, Walk } from "./types";

export type BranchKind = "case" | "otherwise";
export type ItemKind = "use" | "loop" | "parallel" | "sequence" | "choose" | "map" | BranchKind | "fork" | "unknown";

export interface Entry {
  id: ItemId;
  kind: ItemKind;
  /** The list of a branch of a choice. */
  item: Item;
  /** The name of the use, loop, map or case; empty for what has none. */
  name: string;
  /** For a use, the node that it calls. */
  node: string;
  /** In the Walk as the author wrote it (`/body/0/body/1`). */
  pointer: Pointer;
  parent: Entry | null;
  /** Position in the list that holds it. */
  index: number;
  /** Program order over all uses, forks and heads of the Walk; of a container without a head that of its first one. */
  order: number;
  /** Names of the loops and maps around it, outermost first. */
  loops: string[];
  children: Entry[];
}

export const CHILD_KEYS = { loop: "body", map: "body", parallel: "parallel", sequence: "sequence" } as const;

/** The name of a map that is given none. */
export const MAP_NAME = "items";

/** A branch of a choice: a case by its value, or what is taken where no case has it. */
export interface Branch {
  kind: BranchKind;
  /** The case; empty for `otherwise`. */
  name: string;
  items: Item[];
  /** In the choice (`/cases/photo`). */
  pointer: Pointer;
}

export function kindOf(item: Item): ItemKind {
  if (typeof item === "string") return "use";
  if (Array.isArray(item)) return "sequence";
  if (typeof item !== "object" || item === null) return "unknown";
  for (const kind of ["use", "parallel", "sequence", "loop", "choose", "map", "fork"] as const)
    if (kind in item) return kind;
  return "unknown";
}

/** The branches of a choice in the document's order, `otherwise` last; none for another item. */
export function branchesOf(item: Item): Branch[] {
  if (kindOf(item) !== "choose") return [];
  const { cases, otherwise } = item as Choose;
  const listed = typeof cases === "object" && cases !== null ? Object.entries(cases) : [];
  const named = listed.map(([name, items]): Branch => {
    return { kind: "case", name, items: Array.isArray(items) ? items : [], pointer: join("cases", name) };
  });
  if (!Array.isArray(otherwise)) return named;
  return [...named, { kind: "otherwise", name: "", items: otherwise, pointer: "/otherwise" }];
}

/** The items directly inside, of a choice the lists of its branches; empty for what holds none. */
export function childrenOf(item: Item): readonly Item[] {
  if (Array.isArray(item)) return item;
  const kind = kindOf(item);
  if (kind === "choose") return branchesOf(item).map((branch) => branch.items);
  if (!(kind in CHILD_KEYS)) return [];
  const found = (item as unknown as Record<string, unknown>)[CHILD_KEYS[kind as keyof typeof CHILD_KEYS]];
  return Array.isArray(found) ? (found as Item[]) : [];
}

/** The item with other items inside, in the order of `childrenOf`. */
export function withChildren(item: Item, children: readonly Item[]): Item {
  if (Array.isArray(item)) return [...children];
  if (kindOf(item) !== "choose") {
    const key = CHILD_KEYS[kindOf(item) as keyof typeof CHILD_KEYS];
    return { ...(item as object), [key]: children } as unknown as Item;
  }
  const branches = branchesOf(item).map((branch, index) => ({ ...branch, items: children[index] as Item[] }));
  return withBranches(item as Choose, branches);
}

/** A choice with these branches and no others. */
export function withBranches(item: Choose, branches: readonly Pick<Branch, "kind" | "name" | "items">[]): Choose {
  const cases = branches.flatMap(({ kind, name, items }) => (kind === "case" ? [[name, items] as const] : []));
  const rest = branches.find((branch) => branch.kind === "otherwise");
  const { otherwise: _, ...made } = { ...item, cases: Object.fromEntries(cases) };
  return rest ? { ...made, otherwise: rest.items } : made;
}

export function isContainer(kind: ItemKind): boolean {
  return takesItems(kind) || kind === "choose";
}

/** True if items can be put right into it: a choice takes them in its branches only. */
export function takesItems(kind: ItemKind): boolean {
  return kind in CHILD_KEYS || isBranch(kind);
}

/** True if it repeats what it holds: a loop, or a map, which does so for the items of a list. */
export function isLoop(kind: ItemKind): kind is "loop" | "map" {
  return kind === "loop" || kind === "map";
}

/** True if it takes a value at its head, before what it holds: a choice goes by one, a map through a list. */
export function hasHead(kind: ItemKind): kind is "choose" | "map" {
  return kind === "choose" || kind === "map";
}

/** The reference that a head names; empty where there is none yet. The key of a head is its kind. */
export function headOf(item: Item): string {
  const kind = kindOf(item);
  const value = hasHead(kind) ? (item as unknown as Record<string, unknown>)[kind] : "";
  return typeof value === "string" ? value : "";
}

export function isBranch(kind: ItemKind): kind is BranchKind {
  return kind === "case" || kind === "otherwise";
}

/** The entries at the top of a Walk's body, in order; their descendants hang below. */
export function entries(walk: Walk): Entry[] {
  const seen = new Map<string, number>();
  let order = 0;
  const idOf = (kind: ItemKind, name: string): ItemId => {
    const base = name ? `${kind}:${name}` : kind;
    const number = seen.get(base) ?? 0;
    seen.set(base, number + 1);
    return name ? (number ? `${base}#${number}` : base) : `${base}:${number}`;
  };
  const read = (items: readonly Item[], at: Pointer, parent: Entry | null, loops: string[]): Entry[] =>
    items.map((item, index) => {
      const kind = kindOf(item);
      const name = nameOf(item, kind);
      const pointer = `${at}/${index}`;
      const node = kind === "use" ? (typeof item === "string" ? item : (item as { use: string }).use) : "";
      const id = idOf(kind, name);
      const entry: Entry = { id, kind, item, name, node, pointer, parent, index, order, loops, children: [] };
      if (hasPlace(kind)) order += 1;
      if (kind === "choose") {
        entry.children = branchesOf(item).map((branch, place) => branchEntry(branch, place, entry));
        return entry;
      }
      const inside = Array.isArray(item) || !isContainer(kind) ? pointer : `${pointer}/${CHILD_KEYS[kind as "loop"]}`;
      entry.children = read(childrenOf(item), inside, entry, isLoop(kind) ? [...loops, name] : loops);
      return entry;
    });
  const branchEntry = ({ kind, name, items, pointer: below }: Branch, index: number, parent: Entry): Entry => {
    const pointer = parent.pointer + below;
    const { loops } = parent;
    const id = idOf(kind, name);
    const entry: Entry = {
      id,
      kind,
      item: items,
      name,
      node: "",
      pointer,
      parent,
      index,
      order,
      loops,
      children: [],
    };
    entry.children = read(items, pointer, entry, loops);
    return entry;
  };
  return read(Array.isArray(walk.body) ? walk.body : [], "/body", null, []);
}

/** Every entry of a tree, parents before their children, in program order. */
export function flat(tree: readonly Entry[]): Entry[] {
  return tree.flatMap((entry) => [entry, ...flat(entry.children)]);
}

export function find(tree: readonly Entry[], id: ItemId): Entry | undefined {
  return flat(tree).find((entry) => entry.id === id);
}

/** Program order of the last use, fork or head inside; of an empty container the order at which it stands. */
export function lastOrder(entry: Entry): number {
  return flat([entry]).reduce(
    (last, { kind, order }) => (hasPlace(kind) ? Math.max(last, order) : last),
    entry.order,
  );
}

/** True if it counts in the program order itself, whatever it holds. */
function hasPlace(kind: ItemKind): boolean {
  return !takesItems(kind) || hasHead(kind);
}

function nameOf(item: Item, kind: ItemKind): string {
  if (typeof item === "string") return item;
  if (kind === "use") {
    const use = item as { use: string; as?: string | null };
    return use.as ?? use.use;
  }
  if (kind === "map") return (item as { as?: string | null }).as || MAP_NAME;
  return kind === "loop" ? String((item as { loop: unknown }).loop) : "";
}
