// All Walks laid over one another: the components and every edge that some Walk draws between them.
import { splitReference } from "./names";
import { factsOf, type Facts, type Route } from "./routes";
import { producers } from "./ports";
import type { GraphDocument } from "./types";
import { perObject } from "./perObject";

export interface NodePort {
  node: string;
  port: string;
}

export interface UnionEdge {
  from: NodePort;
  to: NodePort;
  /** The Walks that draw it, in the document's order. */
  walks: string[];
  /** In every one of them a loop carries it back. */
  carried: boolean;
}

export interface UnionStream {
  name: string;
  /** Position in the graph's streams. */
  index: number;
  from: NodePort[];
  to: (NodePort & { walk: string })[];
}

export interface Union {
  /** The graph's nodes, then those that only a Walk names. */
  nodes: string[];
  edges: UnionEdge[];
  streams: UnionStream[];
}

export const union = perObject(derive);

function derive(graph: GraphDocument): Union {
  const nodes = new Set(Object.keys(graph.nodes ?? {}));
  const edges = new Map<string, UnionEdge>();
  const readers = new Map<string, (NodePort & { walk: string })[]>();
  for (const [walk, body] of Object.entries(graph.walks ?? {})) {
    const facts = factsOf(body);
    for (const entry of facts.list) if (entry.kind === "use") nodes.add(entry.node);
    for (const route of facts.routes) {
      if (!route.target.entry) continue;
      const to = { node: route.target.entry.node, port: route.target.port };
      if (route.source.kind === "stream") {
        readers.set(route.source.name, [...(readers.get(route.source.name) ?? []), { ...to, walk }]);
      } else for (const from of feeding(facts, route)) add(edges, from, to, walk, route.carried);
    }
  }
  const streams = (graph.streams ?? []).map((stream, index): UnionStream => {
    const from = new Map(producers(graph, stream).map(({ node, port }) => [`${node}.${port}`, { node, port }]));
    return { name: stream.name, index, from: [...from.values()], to: readers.get(stream.name) ?? [] };
  });
  return { nodes: [...nodes], edges: [...edges.values()], streams };
}

/** The ports that a route's value comes from: of a merge those of all its sources. */
function feeding(facts: Facts, { from, source }: Route): NodePort[] {
  const all = source.kind === "merge" ? (facts.merges.get(source.name)?.sources ?? []) : [from];
  return all.flatMap((reference) => {
    const [use, port] = splitReference(reference);
    const entry = facts.uses.get(use);
    return entry ? [{ node: entry.node, port }] : [];
  });
}

function add(edges: Map<string, UnionEdge>, from: NodePort, to: NodePort, walk: string, carried: boolean): void {
  const key = `${from.node}.${from.port}>${to.node}.${to.port}`;
  const found = edges.get(key);
  if (!found) {
    edges.set(key, { from, to, walks: [walk], carried });
    return;
  }
  if (!found.walks.includes(walk)) found.walks.push(walk);
  found.carried = found.carried && carried;
}

/** The Walks that use a node, in the document's order. */
export function walksOf(graph: GraphDocument, node: string): string[] {
  return Object.entries(graph.walks ?? {})
    .filter(([, walk]) => factsOf(walk).list.some((entry) => entry.kind === "use" && entry.node === node))
    .map(([name]) => name);
}
