// Edits of the placement document: pure, the same object when nothing changes, unknown fields kept.
import type { GraphDocument } from "../types";
import { hostOf } from "./hosts";
import { ALL, groupOf, ranksOfNode, walksOfNodes } from "./resolve";
import type { Group, PlacementDocument } from "./schema.generated";
import { fieldsOf, sameWidth, WHOLE, widthOf, type Width } from "./width";

export { ranksOfNode } from "./resolve";

/** Everything on one rank, written out: what the service would choose, to be edited by hand. */
export function explicit(graph: GraphDocument, device = "cpu", name = graph.name): PlacementDocument {
  return {
    format: "walkgraph/placement@1",
    name,
    graph: graph.name,
    groups: [{ nodes: [ALL], ranks: [0] }],
    ranks: [{ rank: 0, device }],
  };
}

/**
 * Put nodes on ranks, in some Walks or (null) in all that use them. Other nodes stay, with their group's settings.
 * Groups that need no change are kept as the author wrote them; groups that decide nothing any more are dropped.
 * `width`: the ranks of a shard each; without it, a group of shards on these ranks will do, and so will replicas.
 */
export function assign(
  placement: PlacementDocument | null,
  graph: GraphDocument,
  nodes: readonly string[],
  ranks: readonly number[],
  walks: readonly string[] | null,
  width?: Width,
): PlacementDocument {
  const base = placement ?? explicit(graph);
  const all = Object.keys(graph.walks ?? {});
  const only = walks === null || (all.length > 0 && all.every((walk) => walks.includes(walk))) ? null : walks;
  const users = walksOfNodes(graph);
  const places = (node: string): readonly (string | null)[] => {
    const used = users.get(node) ?? [];
    return only ?? (used.length > 0 ? used : [null, ...all]);
  };
  const there = (groups: readonly Group[], node: string) =>
    places(node).every((walk) => isAt(decider(groups, base, node, walk), ranks, width));
  const moved = [...new Set(nodes)].filter((node) => !there(base.groups, node));
  if (moved.length === 0) return base;
  const matters = new Map(moved.map((node) => [node, new Set(places(node))]));
  const wish: Wish = { base, graph, matters, ranks, width, everywhere: only === null };
  const freed = without(base.groups, moved, only);
  const left = moved.filter((node) => !there(freed, node));
  const groups = left.length === 0 ? freed : joined(freed, fresh(left, ranks, only, width), wish);
  return { ...base, groups: promoted(pruned(groups, wish), wish) };
}

/** The lowest free number, on a device of a host (null: the one that plans). */
export function addRank(
  placement: PlacementDocument,
  device: string,
  host: string | null = null,
): { placement: PlacementDocument; rank: number } {
  const taken = new Set(placement.ranks.map((entry) => entry.rank));
  let rank = 0;
  while (taken.has(rank)) rank += 1;
  const entry = { rank, device, ...(host === null ? {} : { host }) };
  return { placement: { ...placement, ranks: [...placement.ranks, entry] }, rank };
}

/** Take a rank away. Its nodes go to `to` (the lowest other one); higher ranks move down, as ranks have no gaps. */
export function removeRank(
  placement: PlacementDocument,
  graph: GraphDocument,
  rank: number,
  to?: number,
): PlacementDocument {
  const others = placement.ranks.filter((entry) => entry.rank !== rank);
  const target = to ?? Math.min(...others.map((entry) => entry.rank));
  if (others.length === placement.ranks.length || others.length === 0 || target === rank) return placement;
  let groups = placement.groups.map((group) => shrunk(group, rank, target));
  const changed = new Set(groups.filter((group, index) => group !== placement.groups[index]));
  for (const group of changed) {
    const rest = groups.filter((other) => other !== group);
    if (!group.nodes.includes(ALL) && alike(groups, rest, placement, graph)) groups = rest;
  }
  const lower = (value: number) => (value > rank ? value - 1 : value);
  return {
    ...placement,
    groups: groups.map((group) =>
      group.ranks.some((value) => value > rank) ? { ...group, ranks: group.ranks.map(lower) } : group,
    ),
    ranks: others.map((entry) => (entry.rank > rank ? { ...entry, rank: entry.rank - 1 } : entry)),
  };
}

export function setDevice(placement: PlacementDocument, rank: number, device: string): PlacementDocument {
  if (placement.ranks.every((entry) => entry.rank !== rank || entry.device === device)) return placement;
  return {
    ...placement,
    ranks: placement.ranks.map((entry) => (entry.rank === rank ? { ...entry, device } : entry)),
  };
}

/** Defaults of the fields of a group; those of others are null. */
const DEFAULTS: Readonly<Record<string, unknown>> = { ...fieldsOf(WHOLE), replicas: 1 };

/** A group with other values of these fields; those at their defaults are left out of the document. */
function withFields(group: Group, fields: Partial<Group>): Group {
  const next: Record<string, unknown> = { ...group };
  for (const [key, value] of Object.entries(fields)) {
    if (value == null || value === DEFAULTS[key]) delete next[key];
    else next[key] = value;
  }
  return next as unknown as Group;
}

/** Fields of one group; what is at its default is left out of the document. */
export function setGroup(placement: PlacementDocument, index: number, fields: Partial<Group>): PlacementDocument {
  const group = placement.groups[index];
  if (!group) return placement;
  const next = withFields(group, fields);
  if (JSON.stringify(next) === JSON.stringify(group)) return placement;
  return {
    ...placement,
    groups: placement.groups.map((other, at) => (at === index ? next : other)),
  };
}

export function renameNode(placement: PlacementDocument, from: string, to: string): PlacementDocument {
  return renamed(placement, "nodes", from, to);
}

export function renameWalk(placement: PlacementDocument, from: string, to: string): PlacementDocument {
  return renamed(placement, "walks", from, to);
}

/** Without the names of nodes and Walks that the graph doesn't have; groups left with none go. */
export function tidy(placement: PlacementDocument, graph: GraphDocument): PlacementDocument {
  const nodes = graph.nodes ?? {};
  const walks = graph.walks ?? {};
  const groups = placement.groups.flatMap((group) => {
    const kept = group.nodes.filter((node) => node === ALL || node in nodes);
    const here = group.walks?.filter((walk) => walk in walks);
    if (kept.length === 0 || here?.length === 0) return [];
    if (kept.length === group.nodes.length && here?.length === group.walks?.length) return [group];
    return [{ ...group, nodes: kept, ...(here ? { walks: here } : {}) }];
  });
  const unchanged = groups.length === placement.groups.length && groups.every((g, i) => g === placement.groups[i]);
  return unchanged ? placement : { ...placement, groups };
}

// ── how assign finds the simplest form ─────────────────────────────────────────────────────────

interface Wish {
  base: PlacementDocument;
  graph: GraphDocument;
  /** Moved nodes -> the Walks in which they must be on `ranks`; null stands for Walks that no group names. */
  matters: ReadonlyMap<string, ReadonlySet<string | null>>;
  ranks: readonly number[];
  /** Shards of each replica; undefined: as many as the group has. */
  width: Width | undefined;
  /** Moved in all Walks, so that those which don't use a moved node are free to be anything. */
  everywhere: boolean;
}

function same(left: readonly (number | string)[], right: readonly (number | string)[]): boolean {
  return left.length === right.length && left.every((value, index) => value === right[index]);
}

/** True if a group puts its nodes on these ranks, with this width if one is given. */
function isAt(group: Group | undefined, ranks: readonly number[], width: Width | undefined): boolean {
  const fits = width === undefined || sameWidth(widthOf(group), width);
  return group !== undefined && fits && same(group.ranks, ranks);
}

function settings(group: Group | undefined): string {
  if (!group) return "";
  return JSON.stringify([
    group.ranks,
    widthOf(group),
    group.replicas ?? 1,
    group.memory,
    group.host,
    group.precision,
  ]);
}

function* pairs(graph: GraphDocument, nodes: Iterable<string> = Object.keys(graph.nodes ?? {})) {
  const walks = [null, ...Object.keys(graph.walks ?? {})];
  for (const node of nodes) for (const walk of walks) yield [node, walk] as const;
}

function decider(groups: readonly Group[], base: PlacementDocument, node: string, walk: string | null) {
  const index = groupOf({ ...base, groups: [...groups] }, node, walk);
  return index === null ? undefined : groups[index];
}

/** True if these groups make the move and change nothing else; `strict`: unused Walks follow a moved node. */
function fits(groups: readonly Group[], wish: Wish, strict: boolean): boolean {
  for (const [node, walk] of pairs(wish.graph)) {
    const now = decider(groups, wish.base, node, walk);
    const matters = wish.matters.get(node);
    if (matters?.has(walk) || (matters && wish.everywhere && strict)) {
      if (!isAt(now, wish.ranks, wish.width)) return false;
    } else if (matters && wish.everywhere) continue;
    else if (settings(now) !== settings(decider(wish.base.groups, wish.base, node, walk))) return false;
  }
  return true;
}

/** The groups without what they say by name of these nodes in these Walks, as far as that touches no other node. */
function without(groups: readonly Group[], moved: readonly string[], only: readonly string[] | null): Group[] {
  return groups.flatMap((group) => {
    const others = group.nodes.filter((node) => !moved.includes(node));
    if (others.length === group.nodes.length) return [group];
    if (only === null) return others.length === 0 ? [] : [{ ...group, nodes: others }];
    if (group.walks == null || others.length > 0) return withoutWhole(group, others, only);
    const walks = group.walks.filter((walk) => !only.includes(walk));
    if (walks.length === group.walks.length) return [group];
    return walks.length === 0 ? [] : [{ ...group, walks }];
  });
}

function withoutWhole(group: Group, others: string[], only: readonly string[]): Group[] {
  const covered = group.walks != null && group.walks.every((walk) => only.includes(walk));
  return covered ? [{ ...group, nodes: others }] : [group];
}

function fresh(nodes: string[], ranks: readonly number[], walks: readonly string[] | null, width = WHOLE): Group {
  const replicas = Math.max(1, Math.floor(ranks.length / width.count));
  const group = { nodes, ranks: [...ranks], ...(walks ? { walks: [...walks] } : {}) };
  return withFields(group, { ...fieldsOf(width), replicas });
}

/** With one more group, or with an author's group on these ranks, of replicas or shards, widened to do the same. */
function joined(groups: readonly Group[], added: Group, wish: Wish): Group[] {
  for (const strict of [true, false])
    for (const [index, group] of groups.entries()) {
      if (!same(group.ranks, added.ranks) || group.nodes.includes(ALL)) continue;
      for (const wider of unions(group, added, strict)) {
        const candidate = groups.map((other, at) => (at === index ? wider : other));
        if (fits(candidate, wish, strict)) return candidate;
      }
    }
  return [...groups, added];
}

function unions(group: Group, added: Group, strict: boolean): Group[] {
  const nodes = [...new Set([...group.nodes, ...added.nodes])];
  const walks = [...new Set([...(group.walks ?? []), ...(added.walks ?? [])])];
  const limited = group.walks != null && added.walks != null;
  const alikeWalks = limited
    ? sameSet(group.walks ?? [], added.walks ?? [])
    : group.walks == null && added.walks == null;
  return [
    ...(alikeWalks || !strict ? [{ ...group, nodes }] : []),
    ...(limited && sameSet(group.nodes, added.nodes) ? [{ ...group, walks }] : []),
  ];
}

function sameSet(left: readonly string[], right: readonly string[]): boolean {
  return same([...left].sort(), [...right].sort());
}

function deciding(groups: readonly Group[], wish: Wish): Set<Group> {
  const found = new Set<Group>();
  for (const [node, walk] of pairs(wish.graph)) {
    const group = decider(groups, wish.base, node, walk);
    if (group) found.add(group);
  }
  return found;
}

function isDefault(group: Group): boolean {
  return group.nodes.includes(ALL) && group.walks == null;
}

/** Without the groups that decided something before and now don't; the default for new nodes stays. */
function pruned(groups: readonly Group[], wish: Wish): Group[] {
  const before = deciding(wish.base.groups, wish);
  const now = deciding(groups, wish);
  return groups.filter(
    (group) => isDefault(group) || now.has(group) || (wish.base.groups.includes(group) && !before.has(group)),
  );
}

/** A default that no node follows any more gives way to the largest group, so that its rank isn't held for nothing. */
function promoted(groups: Group[], wish: Wish): Group[] {
  const star = groups.findIndex(isDefault);
  const idle = groups[star];
  if (!idle || deciding(groups, wish).has(idle) || !deciding(wish.base.groups, wish).has(idle)) return groups;
  const whole = groups.filter((group) => group.walks == null && group !== idle);
  for (const group of whole.sort((a, b) => b.nodes.length - a.nodes.length)) {
    const candidate = groups.flatMap((other) =>
      other === group ? [] : other === idle ? [{ ...group, nodes: [ALL] }] : [other],
    );
    if (fits(candidate, wish, false)) return candidate;
  }
  return groups;
}

// ── ranks and names ─────────────────────────────────────────────────────────────────────────────

/** A group without a rank: on its other ranks, else on the given one. A width that no longer holds becomes the rest. */
function shrunk(group: Group, rank: number, to: number): Group {
  if (!group.ranks.includes(rank)) return group;
  const left = group.ranks.filter((value) => value !== rank);
  const ranks = left.length === 0 ? [to] : left;
  const width = widthOf(group);
  const { length } = ranks;
  const fields =
    width.count > 1
      ? { ...fieldsOf({ ...width, count: length }), replicas: 1 }
      : { ...fieldsOf(WHOLE), replicas: length };
  return withFields(group, { ranks, ...fields });
}

/** True if both put every node on the same ranks in every Walk. */
function alike(left: Group[], right: Group[], base: PlacementDocument, graph: GraphDocument): boolean {
  for (const [node, walk] of pairs(graph)) {
    const ranks = (groups: Group[]) => ranksOfNode({ ...base, groups }, node, walk);
    if (!same(ranks(left), ranks(right))) return false;
  }
  return true;
}

/** Width or replicas of one group, with as many ranks as they need; missing ranks are added to the placement. */
export function resizeGroup(
  placement: PlacementDocument,
  index: number | null,
  field: "width" | "replicas",
  value: number,
): PlacementDocument {
  const group = index === null ? undefined : placement.groups[index];
  if (!group || index === null || value < 1) return placement;
  const width = widthOf(group);
  const other = field === "replicas" ? width.count : (group.replicas ?? 1);
  const free = placement.ranks.map((entry) => entry.rank).filter((rank) => !group.ranks.includes(rank));
  let wider = placement;
  const ranks = [...group.ranks, ...free].slice(0, value * other);
  const host = hostOf(placement, group.ranks[0] ?? NaN);
  while (ranks.length < value * other) {
    const added = addRank(wider, nextDevice(wider, [], host), group.host == null ? host : null);
    wider = added.placement;
    ranks.push(added.rank);
  }
  const fields = field === "width" ? fieldsOf({ ...width, count: value }) : { replicas: value };
  return setGroup(wider, index, { ranks, ...fields });
}

/**
 * For one more rank of a host (null: the one that plans): a GPU that no rank has, of those there are; else the next
 * number, or `cpu` without GPUs.
 */
export function nextDevice(
  placement: PlacementDocument,
  devices: readonly string[] = [],
  host: string | null = null,
): string {
  const here = placement.ranks.filter((entry) => hostOf(placement, entry.rank) === host);
  const taken = new Set(here.map((entry) => entry.device));
  const gpus = devices.filter((device) => device.startsWith("cuda:"));
  const free = gpus.find((device) => !taken.has(device));
  if (free !== undefined) return free;
  if (devices.length > 0) return here.at(-1)?.device ?? devices[0] ?? "cpu";
  const numbers = here.flatMap(({ device }) => (device.startsWith("cuda:") ? [Number(device.slice(5))] : []));
  return numbers.length === 0 ? "cpu" : `cuda:${Math.max(...numbers) + 1}`;
}

function renamed(
  placement: PlacementDocument,
  field: "nodes" | "walks",
  from: string,
  to: string,
): PlacementDocument {
  if (from === to || !placement.groups.some((group) => group[field]?.includes(from))) return placement;
  const follow = (names: string[]) => [...new Set(names.map((name) => (name === from ? to : name)))];
  const groups = placement.groups.map((group) =>
    group[field]?.includes(from) ? { ...group, [field]: follow(group[field]) } : group,
  );
  return { ...placement, groups };
}
