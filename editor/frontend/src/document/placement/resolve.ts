// Which group of a placement decides where a node is. A later group overrides an earlier one; `*` stands for all. Pure.
import { entries, flat } from "../tree";
import type { GraphDocument } from "../types";
import type { Group, PlacementDocument } from "./schema.generated";
import { perObject } from "../perObject";

export const ALL = "*";

/** True if it can be shown, because a draft in the service may be anything. */
export function isReadable(value: unknown): value is PlacementDocument {
  const { groups, ranks } = (value ?? {}) as Partial<PlacementDocument>;
  const whole = (group: Group | null) =>
    Array.isArray(group?.nodes) && Array.isArray(group.ranks) && (group.walks == null || Array.isArray(group.walks));
  return (
    Array.isArray(groups) &&
    groups.every(whole) &&
    Array.isArray(ranks) &&
    ranks.every((entry) => typeof entry?.rank === "number" && typeof entry.device === "string")
  );
}

/** Position of the group that decides for a node in a Walk (null: in Walks that no group names), or null. */
export function groupOf(placement: PlacementDocument, node: string, walk: string | null): number | null {
  const found = placement.groups.findLastIndex((group) => holds(group, node) && applies(group, walk));
  return found < 0 ? null : found;
}

/** The ranks of a node in a Walk (null: in Walks that no group names); empty where no group places it. */
export function ranksOfNode(placement: PlacementDocument, node: string, walk: string | null): number[] {
  const index = groupOf(placement, node, walk);
  return index === null ? [] : [...(placement.groups[index]?.ranks ?? [])];
}

function holds(group: Group, node: string): boolean {
  return group.nodes.includes(node) || group.nodes.includes(ALL);
}

function applies(group: Group, walk: string | null): boolean {
  return group.walks == null || (walk !== null && group.walks.includes(walk));
}

/** Node -> the Walks that use it, in the document's order; nodes that no Walk uses have an empty list. */
export const walksOfNodes = perObject((graph: GraphDocument): ReadonlyMap<string, readonly string[]> => {
  const found = new Map<string, string[]>(Object.keys(graph.nodes ?? {}).map((node) => [node, []]));
  for (const [name, walk] of Object.entries(graph.walks ?? {})) {
    const used = new Set(flat(entries(walk)).flatMap((entry) => (entry.kind === "use" ? [entry.node] : [])));
    for (const node of used) found.get(node)?.push(name);
  }
  return found;
});

/** Where a node is: rank list -> the Walks there. A node that no Walk uses is where it would be by default. */
export function whereabouts(
  placement: PlacementDocument,
  graph: GraphDocument,
  node: string,
): { ranks: number[]; walks: string[] }[] {
  const walks = walksOfNodes(graph).get(node) ?? [];
  if (walks.length === 0) return [{ ranks: ranksOfNode(placement, node, null), walks: [] }];
  const found = new Map<string, { ranks: number[]; walks: string[] }>();
  for (const walk of walks) {
    const ranks = ranksOfNode(placement, node, walk);
    const entry = found.get(ranks.join()) ?? { ranks, walks: [] };
    entry.walks.push(walk);
    found.set(ranks.join(), entry);
  }
  return [...found.values()];
}
