// Ranks as lanes with the nodes that run there as chips; a node that is on several ranks has a chip on each. Pure.
import type { GraphDocument } from "../../document/types";
import { assign } from "../../document/placement/edits";
import { ALL, groupOf, ranksOfNode, walksOfNodes, whereabouts } from "../../document/placement/resolve";
import type { Group, PlacementDocument } from "../../document/placement/schema.generated";

export interface Chip {
  /** `NODE@RANK`; `NODE@` where it is not placed. */
  key: string;
  node: string;
  component: string;
  weights: string | null;
  rank: number | null;
  /** Its Walks here. */
  walks: readonly string[];
  /** The node is on other ranks in other Walks. */
  partial: boolean;
  /** Only a group with `*` puts it here. */
  byDefault: boolean;
  /** Which of its replicas this is, from 1, and of how many; null where it has one. */
  replica: { number: number; of: number } | null;
}

export interface Lane {
  rank: number;
  device: string;
  chips: Chip[];
  /** New components come here. */
  isDefault: boolean;
}

export interface Lanes {
  lanes: Lane[];
  unplaced: Chip[];
}

/** `scope`: show these Walks alone; empty: all, and components that no Walk uses. */
export function lanesOf(placement: PlacementDocument, graph: GraphDocument, scope: readonly string[] = []): Lanes {
  const chips = Object.keys(graph.nodes ?? {}).flatMap((node) => chipsOf(placement, graph, node, scope));
  const fallback = placement.groups.findLast((group) => group.nodes.includes(ALL) && group.walks == null);
  const known = placement.ranks.map((entry) => entry.rank);
  const lost = chips.map((chip) => chip.rank).filter((rank) => rank !== null && !known.includes(rank)) as number[];
  const devices = [...placement.ranks, ...[...new Set(lost)].map((rank) => ({ rank, device: "" }))];
  return {
    lanes: devices.map(({ rank, device }) => ({
      rank,
      device,
      chips: chips.filter((chip) => chip.rank === rank),
      isDefault: fallback?.ranks.includes(rank) ?? false,
    })),
    unplaced: chips.filter((chip) => chip.rank === null),
  };
}

function chipsOf(placement: PlacementDocument, graph: GraphDocument, node: string, scope: readonly string[]): Chip[] {
  const places = whereabouts(placement, graph, node);
  const { component = "", weights = null } = graph.nodes?.[node] ?? {};
  return places.flatMap(({ ranks, walks }) => {
    const here = scope.length === 0 ? walks : walks.filter((walk) => scope.includes(walk));
    if (scope.length > 0 && here.length === 0) return [];
    const group = placement.groups[groupOf(placement, node, walks[0] ?? null) ?? -1];
    const byDefault = group !== undefined && !group.nodes.includes(node);
    const chip = { node, component, weights, walks: here, partial: places.length > 1, byDefault };
    const of = isReplicated(group) ? ranks.length : 1;
    return (ranks.length === 0 ? [null] : ranks).map((rank, index) => {
      const replica = of > 1 ? { number: index + 1, of } : null;
      return { ...chip, rank, replica, key: `${node}@${rank ?? ""}` };
    });
  });
}

function isReplicated(group: Group | undefined): boolean {
  return (group?.replicas ?? 1) > 1 && (group?.tensor_parallel ?? 1) === 1;
}

/**
 * Chips to a rank: each node in the Walks that its chip stands for, in all once no other is left elsewhere. Of a node
 * with replicas only this one moves; it joins one that is there.
 */
export function moveChips(
  placement: PlacementDocument,
  graph: GraphDocument,
  chips: readonly Chip[],
  rank: number,
): PlacementDocument {
  const whole: string[] = [];
  const parts = new Map<string, { nodes: string[]; walks: readonly string[] }>();
  const replicas = chips.filter((chip) => chip.replica !== null);
  const moved = replicas.reduce(
    (before, chip) =>
      onRanks(before, graph, chip, (ranks) => ranks.map((other) => (other === chip.rank ? rank : other))),
    placement,
  );
  if (replicas.length === chips.length) return moved;
  for (const { node, walks } of chips.filter((chip) => chip.replica === null)) {
    const used = walksOfNodes(graph).get(node) ?? [];
    const others = used.filter((walk) => !walks.includes(walk));
    if (others.every((walk) => ranksOfNode(moved, node, walk).join() === String(rank))) whole.push(node);
    else {
      const part = parts.get(walks.join()) ?? { nodes: [], walks };
      part.nodes.push(node);
      parts.set(walks.join(), part);
    }
  }
  const partly = [...parts.values()].reduce(
    (before, { nodes, walks }) => assign(before, graph, nodes, [rank], walks),
    moved,
  );
  return whole.length === 0 ? partly : assign(partly, graph, whole, [rank], null);
}

/** One more replica of each chip's node on a rank, in the Walks that the chip stands for. */
export function replicateChips(
  placement: PlacementDocument,
  graph: GraphDocument,
  chips: readonly Chip[],
  rank: number,
): PlacementDocument {
  return chips.reduce((before, chip) => onRanks(before, graph, chip, (ranks) => [...ranks, rank]), placement);
}

/** A chip's node on other ranks, each once, in the Walks that the chip stands for. */
function onRanks(
  placement: PlacementDocument,
  graph: GraphDocument,
  { node, walks }: Chip,
  change: (ranks: number[]) => number[],
): PlacementDocument {
  const ranks = [...new Set(change(ranksOfNode(placement, node, walks[0] ?? null)))];
  return assign(placement, graph, [node], ranks, walks.length === 0 ? null : walks);
}
