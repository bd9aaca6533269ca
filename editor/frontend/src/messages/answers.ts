// The control service's answers, as far as the editor reads them. Field names are the service's.

export interface Port {
  name: string;
  /** As written in graphs: `latents: float[n, 64]`. */
  type: string;
  optional: boolean;
  description: string;
  /** The parameter that gives its type, or the ports that it stands for. */
  of?: string;
  /** The parameter that gives the type of the ports that it stands for, where they have none of their own. */
  like?: string;
}

export interface ParamDeclaration {
  type: "integer" | "number" | "boolean" | "string";
  default: boolean | number | string | null;
  min: number | null;
  max: number | null;
  choices: (boolean | number | string)[];
  description: string;
  /** A text of several lines. */
  long?: boolean;
  /** The things that ports get from it: their type, or themselves. */
  gives?: "" | "type" | "ports" | "holes";
  /** Not empty: read when the node is loaded, so that it must be a literal. */
  form?: string;
}

export interface StateSlot {
  slot: string;
  kind: "paged_kv" | "tensor" | "rng";
  /** For a `paged_kv`, the connected `appends` decide: only scratch ones make it a read. */
  access: "read" | "write";
  appends: { port: string; scratch: boolean; positions: string }[];
  optional: boolean;
}

/** A component of the palette, or a task that a node can call: `GET /api/v1/components`. */
export interface Component {
  /** `family.role`, or `graph/task`. */
  name: string;
  /** Names that it had: documents that hold them mean it. */
  former?: string[];
  /** Its category: `Text`, `Picture`, `Model`. */
  category?: string;
  description: string;
  inputs: Port[];
  outputs: Port[];
  params: Record<string, ParamDeclaration>;
  states: StateSlot[];
  cost: string;
  /** The family it reads, or `any` of `families`. */
  weights: string | null;
  /** Whose weights fit. */
  families: string[];
  host: boolean;
  /** Its outputs follow from its inputs and parameters, so that they can be kept. */
  deterministic?: boolean;
  /** It is a task of a graph, which the service runs. */
  task?: boolean;
  /** It calls a server outside, which the service does. */
  outside?: boolean;
  served?: boolean;
  /** True if it has a network; otherwise it can be drawn but not deployed. */
  available: boolean;
  examples?: ComponentExample[];
}

/** The outputs of a component for some values; media and large tensors are described in words. */
export interface ComponentExample {
  note: string;
  params: Record<string, unknown>;
  inputs: Record<string, unknown>;
  outputs: Record<string, unknown>;
}

/** Component name -> its declaration. */
export type Catalogue = Readonly<Record<string, Component>>;

export interface Problem {
  /** Stable. */
  code: string;
  /** JSON pointer into what was judged, as the author wrote it. */
  pointer: string;
  message: string;
  severity: "error" | "warning";
}

export interface DocumentEntry {
  name: string;
  etag: string;
  bundled: boolean;
  updated_at: number;
  description: string;
  tags: string[];
}

export interface VersionEntry {
  id: number;
  etag: string;
  note: string;
  created_at: number;
}

export interface DeviceShown {
  host: string;
  /** `cpu`, `cuda:0`. */
  name: string;
  title: string;
  total: number;
  free: number;
  /** Not in this machine: somebody wants to know whether it would fit. */
  hypothetical: boolean;
  /** The NUMA node of a GPU, where a machine has several. */
  numa?: number | null;
}

/** The way between two GPUs of a host. */
export interface LinkShown {
  host: string;
  first: string;
  second: string;
  /** Over NVLink; below PCIe switches; over a PCIe host bridge; within a NUMA node; between NUMA nodes. */
  kind: "nvlink" | "pcie" | "bridge" | "node" | "system";
  /** Each reads the other's memory. */
  peers: boolean;
}

/** The way between two hosts, as it was measured: bytes a second, and seconds that each value takes at least. */
export interface HostLinkShown {
  first: string;
  second: string;
  bandwidth: number;
  latency: number;
}

export interface RankShown {
  rank: number;
  host: string;
  device: string;
  nodes: string[];
  kv_bytes: number;
  /** Contributor -> bytes. */
  budget: Record<string, number>;
  /** Bytes that this rank may fill. */
  capacity: number;
  /** The placement leaves its host to the plan. */
  unpinned?: boolean;
}

/** How one edge of a Walk, or a stream, travels. */
export interface RouteShown {
  walk: string | null;
  stream: string | null;
  /** JSON pointer of the edge in the graph as the author wrote it. */
  pointer: string;
  source: number;
  target: number;
  /** `local`, `shm`, `cuda_ipc`, ... */
  transport: string;
}

/** How a step's result travels to a later step. */
export interface HandedShown {
  task: string;
  /** Pointer of the later step's binding in the graph. */
  pointer: string;
  /** `read.pixels`: Walk and result. */
  result: string;
  /** `see.image`: Walk and input. */
  input: string;
  source: number;
  target: number;
  transport: string;
}

/** A state that changes rank: bytes of a request with default parameters, and with the largest; 0: not known. */
export interface CopyShown {
  state: string;
  /** In this Walk; null: between steps. */
  walk: string | null;
  source: number;
  target: number;
  bytes: number;
  largest: number;
  /** Time of `bytes` between two hosts, where that is known. */
  seconds?: number | null;
  transport: string;
  /** It leaves in parts while it grows; otherwise whole. */
  parts: boolean;
}

/** Where a loop of a Walk is iterated. */
export interface LoopShown {
  walk: string;
  loop: string;
  /** On the device, as a whole; otherwise call by call. */
  resident: boolean;
  /** In a sentence without its stop; names stand in backticks. */
  why: string;
  /** The resident loop around it that it is unrolled in. */
  within: string | null;
  /** How often it goes where a task's parameters are its defaults; empty where that follows from something else. */
  usual: readonly number[];
}

export interface PlanShown {
  ok: boolean;
  deployable: boolean;
  problems: Problem[];
  placement: unknown;
  ranks: RankShown[];
  /** Those of the host that plans are first. */
  devices: DeviceShown[];
  /** Between GPUs of one host, as far as they are known. */
  links?: LinkShown[];
  host_links?: HostLinkShown[];
  routes: RouteShown[];
  handed: HandedShown[];
  copies: CopyShown[];
  loops: LoopShown[];
  drawing: string | null;
  digest: string | null;
}

export interface WorkerShown {
  rank: number;
  state: string;
  reason: string | null;
  device: string | null;
  /** null: the service's own. */
  host?: string | null;
  [other: string]: unknown;
}

export interface DeploymentShown {
  id: string;
  graph: string;
  placement: string;
  state: "starting" | "ready" | "degraded" | "failed" | "stopped" | "draining";
  revision: number;
  reason: string | null;
  ranks: WorkerShown[];
  running: number;
  waiting: number;
  restarts: number;
  created_at: number;
  tasks: string[];
  digest: string | null;
  /** The version that will take over once it is ready. */
  next: { state: string; reason: string | null; ranks: WorkerShown[] } | null;
  /** Of a page, which runs there what is drawn. */
  scratch: boolean;
}

export interface RunShown {
  id: string;
  deployment: string;
  task: string;
  /** `waiting`: for a person. */
  state: "running" | "waiting" | "done" | "cancelled" | "failed";
  created_at: number;
  seconds: number | null;
  queued: number | null;
  seed: number | null;
  params: Record<string, boolean | number | string>;
  error: { code: string; message: string; [other: string]: unknown } | null;
  times: unknown[];
  /** The start of what it was given and has made; null once the service follows it no longer. */
  glimpse?: { said: string; wrote: string; pictured: boolean } | null;
}

/** The settings of the operator of the service. */
export interface EnvironmentShown {
  version: string;
  settings: {
    name: string;
    /** Without secrets; empty if there is none. */
    value: string;
    source: "set" | "default";
    secret: boolean;
    meaning: string;
  }[];
  /** Servers that nodes may call. */
  hosts: string[];
  plugins: { name: string; installed: boolean }[];
}

/** A run of this client that waits to begin, or goes on. */
export interface QueuedShown {
  run: string;
  task: string;
  created_at: number;
  state: "running" | "paused" | "suspended" | "waiting";
  /** From 1; null: it isn't in the queue. */
  place: number | null;
  said: string;
  /** It can exchange places with this client's run before it, or behind it. */
  up: boolean;
  down: boolean;
}

export interface QueueShown {
  deployment: string;
  /** Of all clients. */
  waiting: number;
  runs: QueuedShown[];
}

/** One value of an output: `{type: "text", text}`, or `{type, mime, data}` with base64. */
export interface ValueShown {
  type: string;
  mime?: string;
  text?: string;
  data?: string;
  [other: string]: unknown;
}

/** Tokens of prompts and pictures that a run read, and those of them that were found in caches. */
/** How a loop that a value can end was over. */
export interface LoopEndShown {
  walk: string;
  loop: string;
  iterations: number;
  /** `stop`: its `until`. `bound`: its count. Otherwise what a component says of it. */
  reason: string;
}

/** The playback of what a run gave as it came, such as speech, and how often a player of it ran dry. */
export interface PlayedShown {
  seconds: number;
  underruns: number;
  /** Seconds that the player stood still, in all. */
  late: number;
}

export interface Usage {
  read: number;
  cached_tokens: number;
  loops?: LoopEndShown[];
  /** Left out if nothing of the run is played. */
  played?: PlayedShown;
  /** Words of the request that a starter has not learned; left out if there are none. */
  unknown_words?: string[];
}

/** An approval that a run waits for. */
export interface ApprovalEvent {
  run: string;
  /** How many approvals came before it in the run. */
  number: number;
  label: string;
  /** A refused run goes on: later steps read the answer. */
  goes_on: boolean;
  /** Seconds since 1970. */
  expires_at: number;
  /** `walk.result` -> its value; null if there is none. */
  values: Record<string, ValueShown | null>;
}

export type RunEvent =
  | { event: "accepted"; run: string; seed: number }
  | {
      event: "output";
      run: string;
      name: string;
      index: number;
      iteration: number[] | null;
      /** The pass of each loop of steps that it comes from. */
      passes?: number[];
      value: ValueShown;
    }
  | ({ event: "approval" } & ApprovalEvent)
  | { event: "decision"; run: string; number: number; approved: boolean; note: string; at: number }
  | { event: "done"; run: string; seconds: number; queued: number; times: unknown[]; usage?: Usage }
  | {
      event: "error";
      run: string;
      seconds: number;
      queued: number;
      times: unknown[];
      usage?: Usage;
      error: { code: string; message: string };
    };
