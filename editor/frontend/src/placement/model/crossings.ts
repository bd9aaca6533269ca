// Transfers between ranks: edges of Walks, streams, and results that a later step reads; with the nodes at
// their ends. Pure.
import type { CopyShown, HandedShown, LinkShown, PlanShown, RouteShown } from "../../messages/answers";
import { readLink, readResult } from "../../document/names";
import { at } from "../../document/pointer";
import { entries, flat } from "../../document/tree";
import type { GraphDocument, Stream } from "../../document/types";
import { showBytes } from "../../ui/words";
import type { Lanes } from "./lanes";
import { strings } from "../../strings";

export interface Crossing {
  key: string;
  walk: string | null;
  stream: string | null;
  /** Set for a result that goes from step to step. */
  task: string | null;
  pointer: string;
  /** As written: `noise.latents`. */
  from: string;
  to: string;
  /** null: an end that is no component. */
  fromNode: string | null;
  toNode: string | null;
  source: number;
  target: number;
  transport: string;
  /** Written on its line; without it, the transport is. */
  words?: string;
}

export const BROADCAST = "broadcast";

export const TRANSPORTS: Record<string, string> = {
  local: strings.placement.staysOnTheRank,
  shm: strings.placement.throughSharedMemory,
  inline: strings.placement.insideTheMessage,
  control: strings.placement.toTheClient,
  cuda_ipc: strings.placement.fromGpuToGpu,
  nixl: strings.placement.overTheNetwork,
  [BROADCAST]: strings.placement.toTheOtherShards,
};

export function crossingsOf(
  graph: GraphDocument,
  { routes, handed }: { routes: readonly RouteShown[]; handed: readonly HandedShown[] },
): Crossing[] {
  const wires = routes.filter(crosses).map((route) => {
    const ends = route.stream === null ? edgeEnds(graph, route) : streamEnds(graph, route);
    return { ...route, task: null, ...ends };
  });
  const results = handed.filter(crosses).map(({ result, input, ...route }) => {
    const [producer = "", name = ""] = result.split(".");
    const [reader = "", taken = ""] = input.split(".");
    const fromNode = resultNode(graph, producer, name);
    return {
      ...route,
      walk: null,
      stream: null,
      from: result,
      to: input,
      fromNode,
      toNode: inputNode(graph, reader, taken),
    };
  });
  return [...wires, ...results].map((route, index) => ({
    key: `${route.pointer} ${route.source}>${route.target} ${index}`,
    ...route,
  }));
}

/** What a transport does: from GPU to GPU, over which way, if that is known; else, why memory of the host is used. */
export function transportWords(
  { transport, source, target }: Pick<Crossing, "transport" | "source" | "target">,
  plan: Pick<PlanShown, "ranks" | "links"> | null,
): string {
  const words = TRANSPORTS[transport] ?? "";
  const [one, other] = [source, target].map((rank) => plan?.ranks.find((entry) => entry.rank === rank));
  if (one?.host !== other?.host) return words;
  const pair = [one?.device, other?.device].sort().join();
  const link = plan?.links?.find(
    (link) => link.host === one?.host && [link.first, link.second].sort().join() === pair,
  );
  if (!link) return words;
  if (transport === "cuda_ipc") return `${words}, ${LINKS[link.kind]}`;
  return transport === "shm" && !link.peers ? `${words}, ${strings.placement.gpusCantRead}` : words;
}

const LINKS: Record<LinkShown["kind"], string> = {
  nvlink: strings.placement.overNvlink,
  pcie: strings.placement.overPcie,
  bridge: strings.placement.overBridge,
  node: strings.placement.overNode,
  system: strings.placement.overSystem,
};

/** States that change rank, between the chips that they are bound to: one line for each pair of ranks. */
export function movesOf(graph: GraphDocument, copies: readonly CopyShown[], { lanes }: Lanes): Crossing[] {
  const bound = (state: string, rank: number) => {
    const chips = lanes.find((lane) => lane.rank === rank)?.chips ?? [];
    return chips.find(({ node }) => Object.values(graph.nodes?.[node]?.states ?? {}).includes(state))?.node ?? null;
  };
  return copies.map(({ state, walk, source, target, bytes, largest }, index) => ({
    key: `state ${state} ${source}>${target} ${index}`,
    walk,
    stream: null,
    task: null,
    pointer: `/states/${state}`,
    from: state,
    to: state,
    fromNode: bound(state, source),
    toNode: bound(state, target),
    source,
    target,
    transport: "",
    words: largest === 0 ? state : strings.placement.stateOf(state, showBytes(bytes)),
  }));
}

/** What comes to the first shard of a group goes on to the others; what leaves the group leaves from the first. */
export function broadcasts(crossings: readonly Crossing[], { lanes }: Lanes): Crossing[] {
  const found = new Map<string, Crossing>();
  for (const crossing of crossings) {
    const chips = lanes.find((lane) => lane.rank === crossing.target)?.chips ?? [];
    const chip = chips.find(({ node }) => node === crossing.toNode);
    for (const target of chip?.shard?.number === 1 ? chip.span.slice(1) : []) {
      const { toNode, target: source } = crossing;
      const key = `${BROADCAST} ${toNode} ${source}>${target}`;
      found.set(key, { ...crossing, key, fromNode: toNode, source, target, transport: BROADCAST, words: BROADCAST });
    }
  }
  return [...found.values()];
}

function crosses({ source, target }: { source: number; target: number }): boolean {
  return source !== target;
}

function resultNode(graph: GraphDocument, walk: string, name: string): string | null {
  const found = graph.walks?.[walk]?.results?.[name];
  return found === undefined ? null : nodeOf(usesOf(graph, walk), readResult(found).from);
}

/** The first that reads an input. */
function inputNode(graph: GraphDocument, walk: string, name: string): string | null {
  const link = (graph.walks?.[walk]?.edges ?? []).map(readLink).find(({ from }) => from === `@in.${name}`);
  return link ? nodeOf(usesOf(graph, walk), link.to) : null;
}

type Ends = Pick<Crossing, "from" | "to" | "fromNode" | "toNode">;

function edgeEnds(graph: GraphDocument, route: RouteShown): Ends {
  const link = at(graph, route.pointer) as { from?: unknown; to?: unknown } | unknown[] | undefined;
  const [from, to] = Array.isArray(link) ? link : [link?.from, link?.to];
  const uses = usesOf(graph, route.walk ?? "");
  return { from: text(from), to: text(to), fromNode: nodeOf(uses, text(from)), toNode: nodeOf(uses, text(to)) };
}

function streamEnds(graph: GraphDocument, route: RouteShown): Ends {
  const stream = at(graph, route.pointer) as Stream | undefined;
  const from = stream?.from ?? "";
  const producer = (stream?.walks ?? [])
    .map((walk) => nodeOf(usesOf(graph, walk), from))
    .find((node) => node !== null);
  const reader = readerOf(graph, route.stream ?? "");
  return { from, to: reader?.to ?? "", fromNode: producer ?? null, toNode: reader?.node ?? null };
}

/** The first edge that reads a stream. */
function readerOf(graph: GraphDocument, stream: string): { to: string; node: string | null } | null {
  for (const [name, walk] of Object.entries(graph.walks ?? {}))
    for (const link of walk.edges ?? []) {
      const [from, to] = Array.isArray(link) ? link : [link.from, link.to];
      if (from === `@stream.${stream}`) return { to: text(to), node: nodeOf(usesOf(graph, name), text(to)) };
    }
  return null;
}

function usesOf(graph: GraphDocument, walk: string): Map<string, string> {
  const found = graph.walks?.[walk];
  if (!found) return new Map();
  return new Map(flat(entries(found)).flatMap((entry) => (entry.kind === "use" ? [[entry.name, entry.node]] : [])));
}

function nodeOf(uses: Map<string, string>, reference: string): string | null {
  return uses.get(reference.split(".")[0] ?? "") ?? null;
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
