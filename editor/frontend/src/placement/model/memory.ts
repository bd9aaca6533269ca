// The contributors to a rank's memory, for bars and estimates. Pure; bytes.
import type { DeviceShown, PlanShown, RankShown } from "../../messages/answers";
import { strings } from "../../strings";

export type PartKind = "weights" | "kv" | "arena" | "workspace" | "graphs" | "margin" | "other";

export interface Part {
  key: string;
  kind: PartKind;
  /** `weights bagel` -> `Weights bagel`. */
  label: string;
  /** Its purpose. */
  about: string;
  bytes: number;
}

export interface LaneMemory {
  parts: Part[];
  total: number;
  capacity: number;
  device: DeviceShown | null;
  /** Taken on the device by what isn't this placement. */
  elsewhere: number;
  /** Given to other ranks of this placement on the same device. */
  neighbours: number;
  /** The rank needs this much more than it has. */
  over: number;
  /** The device's ranks are given this much more than it has free. */
  deviceOver: number;
  /** The bar's full width, where the rank's parts end in it, and what they must not pass. */
  scale: number;
  end: number;
  limit: number;
}

const KINDS: Record<PartKind, { label: string; about: string }> = {
  weights: { label: strings.placement.weights, about: strings.placement.readOnceSharedByAll },
  kv: { label: strings.placement.cache, about: strings.placement.tokensThatRequestsKeep },
  arena: { label: strings.placement.arena, about: strings.placement.tensorsSentToOtherGpus },
  workspace: { label: strings.placement.workspace, about: strings.placement.scratchMemoryOfTheLargest },
  graphs: { label: strings.placement.graphs, about: strings.placement.capturedWorkOfTheGpu },
  margin: { label: strings.placement.margin, about: strings.placement.driverCapturedGraphsAndFragmentation },
  other: { label: strings.placement.other, about: "" },
};

const PART_KINDS = Object.keys(KINDS) as PartKind[];

/** One entry of a rank's budget. */
export function partOf(key: string, bytes: number): Part {
  const [word = "", ...rest] = key.split(" ");
  const kind: PartKind = word in KINDS ? (word as PartKind) : "other";
  const name = rest.join(" ");
  const label = kind === "other" ? key : name ? `${KINDS[kind].label} ${name}` : KINDS[kind].label;
  return { key, kind, label, about: KINDS[kind].about, bytes };
}

/** The device of a rank; undefined: its host doesn't have it. */
export function deviceOf(plan: PlanShown, rank: Pick<RankShown, "host" | "device">): DeviceShown | undefined {
  return plan.devices.find(({ host, name }) => host === rank.host && name === rank.device);
}

export function devicesOf(plan: PlanShown, host: string | undefined): DeviceShown[] {
  return plan.devices.filter((device) => device.host === host);
}

/** The hosts that were planned for, the one that plans first. */
export function hostsOf(plan: PlanShown | null): string[] {
  return [...new Set(plan?.devices.map((device) => device.host))];
}

function sameDevice(one: RankShown, other: RankShown): boolean {
  return one.host === other.host && one.device === other.device;
}

export function laneMemory(plan: PlanShown, rank: RankShown): LaneMemory {
  const order = (part: Part) => PART_KINDS.indexOf(part.kind);
  const parts = Object.entries(rank.budget)
    .map(([key, bytes]) => partOf(key, bytes))
    .sort((a, b) => order(a) - order(b));
  const total = sum(parts.map((part) => part.bytes));
  const device = deviceOf(plan, rank) ?? null;
  const here = plan.ranks.filter((other) => sameDevice(other, rank));
  const neighbours = sum(here.filter((other) => other.rank !== rank.rank).map((other) => other.capacity));
  const elsewhere = device ? Math.max(0, device.total - device.free) : 0;
  const over = Math.max(0, total - rank.capacity);
  const deviceOver = device ? Math.max(0, rank.capacity + neighbours - device.free) : 0;
  const end = elsewhere + neighbours + total;
  const full = elsewhere + neighbours + rank.capacity;
  return {
    parts,
    total,
    capacity: rank.capacity,
    device,
    elsewhere,
    neighbours,
    over,
    deviceOver,
    scale: Math.max(end, full, device?.total ?? 0, 1),
    end,
    limit: Math.min(full, device?.total ?? full),
  };
}

export interface Estimate {
  weights: number;
  cache: number;
  rest: number;
  total: number;
}

/** Over all ranks. */
export function estimate(plan: PlanShown): Estimate {
  const found = { weights: 0, cache: 0, rest: 0, total: 0 };
  for (const rank of plan.ranks)
    for (const [key, bytes] of Object.entries(rank.budget)) {
      const { kind } = partOf(key, bytes);
      found[kind === "weights" ? "weights" : kind === "kv" ? "cache" : "rest"] += bytes;
      found.total += bytes;
    }
  return found;
}

const SIZE = /^\d{1,6}(\.\d{1,6})? ?(%|B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)$/;

/** The typed memory of a group: null if empty, a message if it is not a size. */
export function parseMemory(text: string): { memory: number | string | null } | { error: string } {
  const trimmed = text.trim();
  if (trimmed === "") return { memory: null };
  if (/^\d+$/.test(trimmed)) {
    const bytes = Number(trimmed);
    return bytes >= 1 && bytes < 2 ** 60 ? { memory: bytes } : { error: strings.placement.writeASizeLike20gib };
  }
  return SIZE.test(trimmed) ? { memory: trimmed } : { error: strings.placement.writeASizeLike20gib };
}

function sum(numbers: number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
