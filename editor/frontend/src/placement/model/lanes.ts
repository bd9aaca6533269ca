// Ranks as lanes with the nodes that run there as chips; a node that is on several ranks has a chip on each. Pure.
import type { GraphDocument } from "../../document/types";
import { assign } from "../../document/placement/edits";
import { ALL, groupOf, ranksOfNode, walksOfNodes, whereabouts } from "../../document/placement/resolve";
import type { PlacementDocument } from "../../document/placement/schema.generated";

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
    return (ranks.length === 0 ? [null] : ranks).map((rank) => ({ ...chip, rank, key: `${node}@${rank ?? ""}` }));
  });
}

/** Chips to a rank: each node in the Walks that its chip stands for, in all once no other is left elsewhere. */
export function moveChips(
  placement: PlacementDocument,
  graph: GraphDocument,
  chips: readonly Chip[],
  rank: number,
): PlacementDocument {
  const whole: string[] = [];
  const parts = new Map<string, { nodes: string[]; walks: readonly string[] }>();
  for (const { node, walks } of chips) {
    const used = walksOfNodes(graph).get(node) ?? [];
    const others = used.filter((walk) => !walks.includes(walk));
    if (others.every((walk) => ranksOfNode(placement, node, walk).join() === String(rank))) whole.push(node);
    else {
      const part = parts.get(walks.join()) ?? { nodes: [], walks };
      part.nodes.push(node);
      parts.set(walks.join(), part);
    }
  }
  const partly = [...parts.values()].reduce(
    (moved, { nodes, walks }) => assign(moved, graph, nodes, [rank], walks),
    placement,
  );
  return whole.length === 0 ? partly : assign(partly, graph, whole, [rank], null);
}
