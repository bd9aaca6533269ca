// Certain fixes for problems of the plan, as one press. Pure.
import type { PlanShown, Problem } from "../../messages/answers";
import type { GraphDocument } from "../../document/types";
import { showBytes } from "../../ui/words";
import { addRank, assign, removeRank, setDevice, setGroup, tidy } from "../../document/placement/edits";
import { deviceNamed, named, spotOf } from "./problems";
import { ANY, hostOf, setHost } from "../../document/placement/hosts";
import { deviceOf, devicesOf } from "./memory";
import { groupOf, ranksOfNode, walksOfNodes } from "../../document/placement/resolve";
import type { PlacementDocument } from "../../document/placement/schema.generated";
import { fieldsOf, WHOLE, widthOf, type WidthField } from "../../document/placement/width";
import { strings } from "../../strings";

export interface Fix {
  label: string;
  /** null: nothing in the placement changes. */
  placement: PlacementDocument | null;
  /** Plan for these GPUs instead (`3x141GB`). */
  hardware?: string;
}

type Mender = (problem: Problem, placement: PlacementDocument, graph: GraphDocument, plan: PlanShown) => Fix[];

/** The fixes of a problem; none where none is certain. `placement` is the one that was planned. */
export function fixesOf(
  problem: Problem,
  placement: PlacementDocument,
  graph: GraphDocument,
  plan: PlanShown,
): Fix[] {
  const found = MENDERS[problem.code]?.(problem, placement, graph, plan) ?? [];
  return found.filter((fix) => fix.hardware !== undefined || (fix.placement !== null && fix.placement !== placement));
}

const OTHER: Record<WidthField, WidthField> = {
  tensor_parallel: "sequence_parallel",
  sequence_parallel: "tensor_parallel",
};

const MENDERS: Record<string, Mender> = {
  unknown_host: useThisMachine,
  two_hosts: useThisMachine,
  several_hosts: useThisMachine,
  no_host: useThisMachine,
  unknown_transport: leaveOutTransport,
  not_installed: leaveOutTransport,
  unsupported: (problem, placement) =>
    problem.pointer === "/placement/transport" ? leaveOutTransport(problem, placement) : [],
  indivisible: (problem, placement, graph) => {
    const { group: index, field } = spotOf(problem, placement, graph);
    const group = index === null ? undefined : placement.groups[index];
    if (!group || index === null) return [];
    if (field === "expert_parallel" || field === "redundant_experts") {
      const parts = { expert_parallel: false, redundant_experts: 0 };
      return [{ label: strings.placement.leaveOut(field), placement: setGroup(placement, index, parts) }];
    }
    const whole = { ranks: group.ranks.slice(0, group.replicas ?? 1), ...fieldsOf(WHOLE) };
    const narrow = { label: strings.placement.width1, placement: setGroup(placement, index, whole) };
    const width = widthOf(group);
    const more = /with (\d+) redundant ones/.exec(problem.message)?.[1];
    if (more !== undefined) {
      const fields = fieldsOf({ ...width, redundant: Number(more) });
      const label = strings.placement.makeRedundant(Number(more));
      return [{ label, placement: setGroup(placement, index, fields) }, narrow];
    }
    const other = OTHER[width.field];
    if (!problem.message.includes(`set \`${other}\` instead`)) return [narrow];
    const fields = fieldsOf({ ...width, field: other });
    return [{ label: strings.placement.divideInstead(other), placement: setGroup(placement, index, fields) }, narrow];
  },
  same_rank: (problem, placement, graph) => {
    const { group: index } = spotOf(problem, placement, graph);
    const ranks = [...new Set(placement.groups[index ?? -1]?.ranks)];
    if (index === null) return [];
    const fields = { ranks, replicas: ranks.length };
    return [{ label: strings.placement.oneReplicaARank, placement: setGroup(placement, index, fields) }];
  },
  too_many_replicas: (problem, placement, graph) => {
    const { group: index } = spotOf(problem, placement, graph);
    const ranks = placement.groups[index ?? -1]?.ranks.slice(0, 1);
    if (index === null || !ranks) return [];
    return [{ label: strings.placement.oneReplica, placement: setGroup(placement, index, { ranks, replicas: 1 }) }];
  },
  rank_count: (problem, placement, graph) => {
    const { group: index } = spotOf(problem, placement, graph);
    const group = index === null ? undefined : placement.groups[index];
    if (!group || index === null) return [];
    const rank = group.ranks[0] ?? 0;
    const fields = { ranks: [rank], ...fieldsOf(WHOLE), replicas: 1 };
    return [{ label: strings.placement.onlyRank(rank), placement: setGroup(placement, index, fields) }];
  },
  shared_shard: (problem, placement, graph) => {
    const { group: index } = spotOf(problem, placement, graph);
    const [rank, first] = [...problem.message.matchAll(/rank (\d+)/g)].map((found) => Number(found[1]));
    const group = placement.groups[index ?? -1];
    if (!group || index === null || rank === undefined || first === undefined) return [];
    const ranks = group.ranks.map((other) => (other === rank ? first : other));
    return [
      { label: strings.placement.moveToRankWithLowest(first), placement: setGroup(placement, index, { ranks }) },
    ];
  },
  unknown_node: (_problem, placement, graph) => [
    { label: strings.placement.removeNamesThatAreGone, placement: tidy(placement, graph) },
  ],
  unknown_walk: (_problem, placement, graph) => [
    { label: strings.placement.removeNamesThatAreGone, placement: tidy(placement, graph) },
  ],
  unknown_rank: (problem, placement, graph) => unknownRank(problem, placement, graph),
  rank_gap: (_problem, placement) => [
    { label: strings.placement.numberTheRanksFrom0, placement: renumbered(placement) },
  ],
  duplicate_rank: (_problem, placement) => [
    { label: strings.placement.keepTheFirst, placement: withoutTwins(placement) },
  ],
  no_ranks: (_problem, placement, _graph, plan) => [
    { label: strings.placement.addRank0, placement: addRank(placement, plan.devices[0]?.name ?? "cpu").placement },
  ],
  no_device: noDevice,
  unplaced: (problem, placement, graph) => unplaced(problem, placement, graph),
  split_state: splitState,
  does_not_fit: doesNotFit,
  device_full: deviceFull,
  idle_rank: (problem, placement, graph) => {
    const { rank } = spotOf(problem, placement, graph);
    return rank === null
      ? []
      : [{ label: strings.placement.removeRank(rank), placement: removeRank(placement, graph, rank) }];
  },
  idle_gpu: (problem, placement, graph) => {
    const { rank } = spotOf(problem, placement, graph);
    return rank === null
      ? []
      : [{ label: strings.placement.useTheCpu, placement: setDevice(placement, rank, "cpu") }];
  },
  other_graph: (_problem, placement, graph) => [
    { label: strings.placement.make(graph.name), placement: { ...placement, graph: graph.name } },
  ],
};

function useThisMachine(problem: Problem, placement: PlacementDocument, graph: GraphDocument): Fix[] {
  const { group: index, rank } = spotOf(problem, placement, graph);
  if (rank !== null) return [{ label: strings.placement.useThisMachine, placement: setHost(placement, rank, null) }];
  if (index === null) return [];
  return [{ label: strings.placement.useThisMachine, placement: setGroup(placement, index, { host: null }) }];
}

function leaveOutTransport(_problem: Problem, placement: PlacementDocument): Fix[] {
  return [{ label: strings.placement.leaveOut("transport"), placement: { ...placement, transport: null } }];
}

function unknownRank(problem: Problem, placement: PlacementDocument, graph: GraphDocument): Fix[] {
  const { group: index } = spotOf(problem, placement, graph);
  const group = index === null ? undefined : placement.groups[index];
  if (!group || index === null) return [];
  const known = placement.ranks.map((entry) => entry.rank);
  const missing = group.ranks.find((rank) => !known.includes(rank));
  const device = placement.ranks.at(-1)?.device ?? "cpu";
  const added = addRank(placement, device);
  const grow =
    added.rank === missing ? [{ label: strings.placement.addRank(missing), placement: added.placement }] : [];
  const lowest = Math.min(...known);
  const move = {
    label: strings.placement.moveToRankWithLowest(lowest),
    placement: setGroup(placement, index, { ranks: [lowest] }),
  };
  return known.length > 0 ? [...grow, move] : grow;
}

/** Another device of this machine, or the GPUs that the placement is made for. */
function noDevice(problem: Problem, placement: PlacementDocument, graph: GraphDocument, plan: PlanShown): Fix[] {
  const { rank } = spotOf(problem, placement, graph);
  if (rank === null) return [];
  const named = hostOf(placement, rank);
  const chosen = plan.ranks.find((entry) => entry.rank === rank)?.host;
  const host = (named === ANY ? chosen : named) ?? plan.devices[0]?.host;
  const here = devicesOf(plan, host).map((device) => ({
    label: strings.placement.use(device.name),
    placement: setDevice(placement, rank, device.name),
  }));
  const wanted = placement.ranks.flatMap(({ device }) =>
    device.startsWith("cuda:") ? [Number(device.slice(5))] : [],
  );
  const count = Math.max(0, ...wanted.map((number) => number + 1));
  const assumed = {
    label: strings.placement.planAsIfThereWere(count),
    placement: null,
    hardware: `${count}x141GB`,
  };
  return count > 0 ? [...here.slice(0, 3), assumed] : here.slice(0, 3);
}

function unplaced(problem: Problem, placement: PlacementDocument, graph: GraphDocument): Fix[] {
  const node = named(problem.message, graph, "node");
  if (node === null) return [];
  const walks = (walksOfNodes(graph).get(node) ?? []).filter((walk) => groupOf(placement, node, walk) === null);
  return placement.ranks.slice(0, 4).map(({ rank }) => ({
    label: strings.placement.placeOnRank(rank),
    placement: assign(placement, graph, [node], [rank], walks),
  }));
}

/** The nodes of a state together, on either rank of the first Walk where they are apart. */
function splitState(problem: Problem, placement: PlacementDocument, graph: GraphDocument): Fix[] {
  const state = named(problem.message, graph, "state");
  const walk = /Walk `([^`]+)`/.exec(problem.message)?.[1];
  if (state === null || walk === undefined) return [];
  const users = walksOfNodes(graph);
  const bound = Object.entries(graph.nodes ?? {})
    .filter(([name, node]) => Object.values(node.states ?? {}).includes(state) && users.get(name)?.includes(walk))
    .map(([name]) => name);
  const ranks = [...new Set(bound.flatMap((node) => ranksOfNode(placement, node, walk)))].sort((a, b) => a - b);
  return ranks.map((rank) => ({
    label: strings.placement.allOnRank(rank, walk),
    placement: assign(placement, graph, bound, [rank], [walk]),
  }));
}

/** More memory where the device has it, else a device that has enough. */
function doesNotFit(problem: Problem, placement: PlacementDocument, graph: GraphDocument, plan: PlanShown): Fix[] {
  const { rank } = spotOf(problem, placement, graph);
  const shown = plan.ranks.find((entry) => entry.rank === rank);
  if (rank === null || !shown) return [];
  const need = Object.values(shown.budget).reduce((total, bytes) => total + bytes, 0);
  const used = (name: string) =>
    plan.ranks
      .filter((other) => other.host === shown.host && other.device === name && other.rank !== rank)
      .reduce((total, other) => total + other.capacity, 0);
  const groups = groupsOn(placement, graph, rank);
  const device = deviceOf(plan, shown);
  const said = groups.length === 1 && placement.groups[groups[0] ?? -1]?.memory != null;
  const memory = Math.ceil(need / 2 ** 30);
  const more =
    device && said && memory * 2 ** 30 + used(device.name) <= device.free
      ? [
          {
            label: strings.placement.giveItGib(memory),
            placement: setGroup(placement, groups[0] ?? 0, { memory: `${memory}GiB` }),
          },
        ]
      : [];
  const others = devicesOf(plan, shown.host).filter(({ name }) => name !== shown.device && name !== "cpu");
  const roomy = said ? [] : others.filter((entry) => entry.free - used(entry.name) >= need);
  return [
    ...more,
    ...roomy.map((entry) => ({
      label: strings.placement.use(entry.name),
      placement: setDevice(placement, rank, entry.name),
    })),
  ];
}

/** Another device that has the room, or what is left of this one. */
function deviceFull(problem: Problem, placement: PlacementDocument, graph: GraphDocument, plan: PlanShown): Fix[] {
  const { name, host = plan.devices[0]?.host } = deviceNamed(problem);
  const here = plan.ranks.filter((rank) => rank.host === host && rank.device === name);
  const taken = (device: string) =>
    plan.ranks
      .filter((rank) => rank.host === host && rank.device === device)
      .reduce((total, rank) => total + rank.capacity, 0);
  const elsewhere = here.flatMap((rank) =>
    devicesOf(plan, host)
      .filter((device) => device.name !== name && device.name !== "cpu")
      .filter((device) => device.free - taken(device.name) >= rank.capacity)
      .slice(0, 1)
      .map((device) => ({
        label: strings.placement.rankWithName(rank.rank, device.name),
        placement: setDevice(placement, rank.rank, device.name),
      })),
  );
  const said = here.flatMap((rank) => groupsOn(placement, graph, rank.rank));
  const open = [...new Set(said)].reduce((changed, index) => setGroup(changed, index, { memory: null }), placement);
  const free = devicesOf(plan, host).find((device) => device.name === name)?.free ?? 0;
  return [...elsewhere, { label: strings.placement.takeWhatIsFree(showBytes(free)), placement: open }];
}

/** The groups that put something on a rank. */
function groupsOn(placement: PlacementDocument, graph: GraphDocument, rank: number): number[] {
  const found = new Set<number>();
  for (const [node, walks] of walksOfNodes(graph))
    for (const walk of walks) {
      const index = groupOf(placement, node, walk);
      if (index !== null && placement.groups[index]?.ranks.includes(rank)) found.add(index);
    }
  return [...found].sort((a, b) => a - b);
}

function withoutTwins(placement: PlacementDocument): PlacementDocument {
  const first = (rank: number) => placement.ranks.find((entry) => entry.rank === rank);
  const ranks = placement.ranks.filter((entry) => first(entry.rank) === entry);
  return ranks.length === placement.ranks.length ? placement : { ...placement, ranks };
}

function renumbered(placement: PlacementDocument): PlacementDocument {
  const order = [...new Set(placement.ranks.map((entry) => entry.rank))].sort((a, b) => a - b);
  const lower = (rank: number) => (order.includes(rank) ? order.indexOf(rank) : rank);
  return {
    ...placement,
    groups: placement.groups.map((group) => ({ ...group, ranks: group.ranks.map(lower) })),
    ranks: placement.ranks.map((entry) => ({ ...entry, rank: lower(entry.rank) })),
  };
}
