// Ranks as lanes with the nodes that run there as chips; a node that is on several ranks has a chip on each. Pure.
import type { GraphDocument } from "../../document/types";
import { addRank, assign, nextDevice, resizeGroup, setGroup } from "../../document/placement/edits";
import { ANY, hostOf } from "../../document/placement/hosts";
import { ALL, groupOf, ranksOfNode, walksOfNodes, whereabouts } from "../../document/placement/resolve";
import type { Group, PlacementDocument } from "../../document/placement/schema.generated";
import { fieldsOf, widthOf, type Width } from "../../document/placement/width";

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
  /** Which of its shards this is, from 1, and of how many; null where it isn't divided. */
  shard: { number: number; of: number } | null;
  /** What its group divides, and how. */
  width: Width;
  /** The ranks of this replica: one, or one for each shard, the one that serves first. */
  span: readonly number[];
}

export interface Lane {
  rank: number;
  /** Empty: it isn't known. */
  host: string;
  /** The plan chose the host. */
  unpinned: boolean;
  device: string;
  chips: Chip[];
  /** New components come here. */
  isDefault: boolean;
  /** The rank whose work it repeats, as another shard of it; null: it serves itself. */
  serving: number | null;
}

export interface Lanes {
  lanes: Lane[];
  unplaced: Chip[];
}

/**
 * `scope`: show these Walks alone; empty: all, and components that no Walk uses. `here`: the host that plans. `chosen`:
 * the hosts that the plan has for ranks. Lanes of one host stand together.
 */
export function lanesOf(
  placement: PlacementDocument,
  graph: GraphDocument,
  scope: readonly string[] = [],
  here = "",
  chosen: ReadonlyMap<number, string> = new Map(),
): Lanes {
  const chips = Object.keys(graph.nodes ?? {}).flatMap((node) => chipsOf(placement, graph, node, scope));
  const fallback = placement.groups.findLast((group) => group.nodes.includes(ALL) && group.walks == null);
  const known = placement.ranks.map((entry) => entry.rank);
  const lost = chips.map((chip) => chip.rank).filter((rank) => rank !== null && !known.includes(rank)) as number[];
  const devices = [...placement.ranks, ...[...new Set(lost)].map((rank) => ({ rank, device: "" }))];
  const unpinned = (rank: number) => hostOf(placement, rank) === ANY;
  const home = (rank: number) => (unpinned(rank) ? chosen.get(rank) : hostOf(placement, rank)) ?? here;
  const hosts = new Map(devices.map(({ rank }) => [rank, home(rank)]));
  const order = [...new Set(hosts.values())];
  const at = (rank: number) => order.indexOf(hosts.get(rank) ?? "");
  return {
    lanes: devices
      .toSorted((a, b) => at(a.rank) - at(b.rank))
      .map(({ rank, device }) => ({
        rank,
        host: hosts.get(rank) ?? "",
        unpinned: unpinned(rank),
        device,
        chips: chips.filter((chip) => chip.rank === rank),
        isDefault: fallback?.ranks.includes(rank) ?? false,
        serving: chips.find((chip) => chip.rank === rank && (chip.shard?.number ?? 1) > 1)?.span[0] ?? null,
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
    const width = widthOf(group);
    const chip = { node, component, weights, walks: here, partial: places.length > 1, byDefault, width };
    const { count } = width;
    const of = (group?.replicas ?? 1) > 1 ? Math.ceil(ranks.length / count) : 1;
    return (ranks.length === 0 ? [null] : ranks).map((rank, index) => {
      const at = Math.floor(index / count);
      const replica = of > 1 ? { number: at + 1, of } : null;
      const shard = count > 1 ? { number: (index % count) + 1, of: count } : null;
      const span = ranks.slice(at * count, (at + 1) * count);
      return { ...chip, rank, replica, shard, span, key: `${node}@${rank ?? ""}` };
    });
  });
}

/**
 * Chips to a rank: each node in the Walks that its chip stands for, in all once no other is left elsewhere. Of a node
 * with replicas or shards only this one moves: a replica joins one that is there, a shard changes places with it.
 */
export function moveChips(
  placement: PlacementDocument,
  graph: GraphDocument,
  chips: readonly Chip[],
  rank: number,
): PlacementDocument {
  const whole: string[] = [];
  const parts = new Map<string, { nodes: string[]; walks: readonly string[] }>();
  const several = (chip: Chip) => chip.replica !== null || chip.shard !== null;
  const moved = chips
    .filter(several)
    .reduce((before, chip) => onRanks(before, graph, chip, (ranks) => moveOne(ranks, chip, rank)), placement);
  if (chips.every(several)) return moved;
  for (const { node, walks } of chips.filter((chip) => !several(chip))) {
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

function moveOne(ranks: readonly number[], chip: Chip, to: number): number[] {
  const swapped = chip.shard === null ? to : (chip.rank ?? to);
  return ranks.map((other) => (other === chip.rank ? to : other === to ? swapped : other));
}

/** One more replica of each chip's node on a rank, in the Walks that the chip stands for. Its other shards get ranks
 * of their own. */
export function replicateChips(
  placement: PlacementDocument,
  graph: GraphDocument,
  chips: readonly Chip[],
  rank: number,
): PlacementDocument {
  return chips.reduce((before, chip) => {
    const taken = new Set([rank, ...ranksOfNode(before, chip.node, chip.walks[0] ?? null)]);
    const added = [rank];
    let grown = before;
    while (added.length < (chip.shard?.of ?? 1)) {
      const free = grown.ranks.find((entry) => !taken.has(entry.rank) && !isUsed(grown, entry.rank));
      const host = hostOf(grown, rank);
      const next = free ? { placement: grown, rank: free.rank } : addRank(grown, nextDevice(grown, [], host), host);
      grown = next.placement;
      taken.add(next.rank);
      added.push(next.rank);
    }
    return onRanks(grown, graph, chip, (ranks) => (ranks.includes(rank) ? ranks : [...ranks, ...added]));
  }, placement);
}

function isUsed(placement: PlacementDocument, rank: number): boolean {
  return placement.groups.some((group) => group.ranks.includes(rank));
}

/**
 * Chips divided over these ranks, the first of which serves, in the Walks that they stand for: as many shards as
 * ranks, and one is the node whole. Where a node has replicas, all of them get this width.
 */
export function widenChips(
  placement: PlacementDocument,
  graph: GraphDocument,
  chips: readonly Chip[],
  ranks: readonly number[],
): PlacementDocument {
  const parts = new Map<string, { nodes: string[]; walks: readonly string[] | null; width: Width }>();
  const nodes = new Set(chips.map((chip) => chip.node));
  let changed = placement;
  for (const chip of chips) {
    const walks = walksOf(graph, chip);
    const index = groupOf(changed, chip.node, chip.walks[0] ?? null);
    const group = changed.groups[index ?? -1];
    const width: Width = { ...widthOf(group), count: ranks.length };
    if (chip.replica !== null) changed = resizeGroup(changed, index, "width", ranks.length);
    else if (group && index !== null && (ranks.length > 1 || group.memory != null) && isOf(group, nodes, walks))
      // The author's own group, with its memory.
      changed = setGroup(changed, index, { ranks: [...ranks], ...fieldsOf(width) });
    else {
      const key = JSON.stringify([width, walks]);
      const part = parts.get(key) ?? { nodes: [], walks, width };
      part.nodes.push(chip.node);
      parts.set(key, part);
    }
  }
  return [...parts.values()].reduce(
    (before, part) => assign(before, graph, part.nodes, ranks, part.walks, part.width),
    changed,
  );
}

/** True if a group is of these nodes alone, and decides nothing beyond these Walks (null: all). */
function isOf(group: Group, nodes: ReadonlySet<string>, walks: readonly string[] | null): boolean {
  const inside = walks === null || (group.walks ?? null)?.every((walk) => walks.includes(walk)) === true;
  return inside && group.nodes.every((node) => nodes.has(node));
}

/** The Walks that a chip stands for; null if there are no others that use its node. */
function walksOf(graph: GraphDocument, { node, walks }: Chip): readonly string[] | null {
  return walksOfNodes(graph)
    .get(node)
    ?.every((walk) => walks.includes(walk))
    ? null
    : walks;
}

/**
 * The ranks that a chip is on once its edge is at a lane: from the one that serves, which stays the first, to there.
 * `order`: the lanes from left to right.
 */
export function spanTo(order: readonly number[], span: readonly number[], over: number): number[] {
  const first = span[0];
  const [from, to] = [order.indexOf(first ?? NaN), order.indexOf(over)];
  if (first === undefined || from < 0 || to < 0) return [...span];
  return to >= from ? order.slice(from, to + 1) : [first, ...order.slice(to, from)];
}

/** A chip's node on other ranks, each once, in the Walks that the chip stands for. */
function onRanks(
  placement: PlacementDocument,
  graph: GraphDocument,
  chip: Chip,
  change: (ranks: number[]) => number[],
): PlacementDocument {
  const ranks = [...new Set(change(ranksOfNode(placement, chip.node, chip.walks[0] ?? null)))];
  return assign(placement, graph, [chip.node], ranks, walksOf(graph, chip), chip.shard ? chip.width : undefined);
}
