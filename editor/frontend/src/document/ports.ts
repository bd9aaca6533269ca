// The ports of nodes, and the types of what references name.
import type { Catalogue, Component, Port } from "../messages/answers";
import { splitReference } from "./names";
import { endOf, factsOf } from "./routes";
import { shaped } from "./shaping";
import type { GraphDocument, Node } from "./types";
import { LOOP_INDEX } from "./typing";

export interface ShownPort extends Port {
  /** The component doesn't declare it, or isn't known; an edge names it. */
  ghost?: true;
}

export interface NodePorts {
  /** null: a ghost, with the ports that edges name. */
  component: Component | null;
  inputs: readonly ShownPort[];
  outputs: readonly ShownPort[];
}

/** The component of a node, with the ports that its parameters give it; null if the catalogue lacks it. */
export function declaredFor(catalogue: Catalogue, node: Node | undefined): Component | null {
  const found = node && catalogue[node.component];
  return found ? shaped(found, node.params ?? {}) : null;
}

export function componentOf(graph: GraphDocument, catalogue: Catalogue, node: string): Component | null {
  return declaredFor(catalogue, graph.nodes?.[node]);
}

const portsKnown = new WeakMap<GraphDocument, { catalogue: Catalogue; nodes: Map<string, NodePorts> }>();

/** A node's ports: those its component declares, then those that only edges name. */
export function portsOf(graph: GraphDocument, catalogue: Catalogue, node: string): NodePorts {
  let known = portsKnown.get(graph);
  if (known?.catalogue !== catalogue) {
    known = { catalogue, nodes: allPorts(graph, catalogue) };
    portsKnown.set(graph, known);
  }
  return known.nodes.get(node) ?? { component: componentOf(graph, catalogue, node), inputs: [], outputs: [] };
}

function allPorts(graph: GraphDocument, catalogue: Catalogue): Map<string, NodePorts> {
  const named = new Map<string, { inputs: Set<string>; outputs: Set<string> }>();
  const of = (node: string) => {
    const found = named.get(node) ?? { inputs: new Set<string>(), outputs: new Set<string>() };
    named.set(node, found);
    return found;
  };
  for (const node of Object.keys(graph.nodes ?? {})) of(node);
  for (const walk of Object.values(graph.walks ?? {})) {
    const facts = factsOf(walk);
    for (const entry of facts.uses.values()) of(entry.node);
    for (const route of [...facts.routes, ...facts.results, ...facts.merging, ...facts.heads]) {
      if (route.source.entry) of(route.source.entry.node).outputs.add(route.source.port);
      if (route.target.entry) of(route.target.entry.node).inputs.add(route.target.port);
    }
  }
  for (const stream of graph.streams ?? [])
    for (const { node, port } of producers(graph, stream)) of(node).outputs.add(port);
  return new Map(
    [...named].map(([node, ports]) => {
      const component = componentOf(graph, catalogue, node);
      const inputs = withGhosts(component?.inputs ?? [], ports.inputs);
      return [node, { component, inputs, outputs: withGhosts(component?.outputs ?? [], ports.outputs) }];
    }),
  );
}

function withGhosts(declared: readonly Port[], named: ReadonlySet<string>): readonly ShownPort[] {
  const ghosts = [...named].filter((name) => name && !declared.some((port) => port.name === name));
  if (!ghosts.length) return declared;
  return [
    ...declared,
    ...ghosts.map((name): ShownPort => ({ name, type: "", optional: true, description: "", ghost: true })),
  ];
}

/** The nodes' ports that a stream's items come from, one for each node that plays its use. */
export function producers(
  graph: GraphDocument,
  stream: { from: string; walks: readonly string[] },
): { node: string; port: string; walk: string }[] {
  const [use, port] = splitReference(String(stream.from));
  return (Array.isArray(stream.walks) ? stream.walks : []).flatMap((walk) => {
    const facts = graph.walks?.[walk] && factsOf(graph.walks[walk]);
    const sources = use === "@merge" ? (facts?.merges.get(port)?.sources ?? []) : [stream.from];
    return sources.flatMap((source) => {
      const [name, output] = splitReference(String(source));
      const entry = facts?.uses.get(name);
      return entry ? [{ node: entry.node, port: output, walk }] : [];
    });
  });
}

/**
 * The type of what a reference of a Walk names, as it is written; null where that can't be known. A use's port is
 * looked for among what it gives, then among what it takes, unless `side` says which.
 */
export function portType(
  graph: GraphDocument,
  catalogue: Catalogue,
  walk: string,
  reference: string,
  side?: "source" | "target",
): string | null {
  const body = graph.walks?.[walk];
  if (!body) return null;
  const facts = factsOf(body);
  const end = endOf(reference, facts, reference.startsWith("@out.") ? "target" : "source");
  switch (end.kind) {
    case "in":
      return body.inputs?.[end.name] ?? null;
    case "loop":
      return LOOP_INDEX;
    case "stream":
      return streamType(graph, catalogue, end.name);
    case "merge":
      return mergeType(graph, catalogue, walk, end.name);
    case "out": {
      const route = facts.routes.find((each) => each.target.kind === "out" && each.target.name === end.name);
      return route ? portType(graph, catalogue, walk, route.from, "source") : null;
    }
    default: {
      const component = end.entry && componentOf(graph, catalogue, end.entry.node);
      if (!component) return null;
      const outputs = side === "target" ? [] : component.outputs;
      const inputs = side === "source" ? [] : component.inputs;
      return [...outputs, ...inputs].find((port) => port.name === end.port)?.type ?? null;
    }
  }
}

/** The type of a merge's value: that of the first of its sources whose type is known. */
function mergeType(graph: GraphDocument, catalogue: Catalogue, walk: string, name: string): string | null {
  const sources = factsOf(graph.walks![walk]!).merges.get(name)?.sources ?? [];
  const types = sources.map((from) =>
    from.startsWith("@") ? null : portType(graph, catalogue, walk, from, "source"),
  );
  return types.find((type) => type !== null) ?? null;
}

/** The type of a stream's items. */
export function streamType(graph: GraphDocument, catalogue: Catalogue, name: string): string | null {
  const stream = graph.streams?.find((each) => each.name === name);
  if (!stream) return null;
  for (const { node, port } of producers(graph, stream)) {
    const found = componentOf(graph, catalogue, node)?.outputs.find((each) => each.name === port);
    if (found) return found.type;
  }
  return null;
}
