// Types of edges: a modality, a dtype and a symbolic shape, checked like `walkgraph.graph.ports`.
import type { Catalogue, Component, Port } from "../messages/answers";
import { splitReference } from "./names";
import { endOf, factsOf } from "./routes";
import type { GraphDocument } from "./types";
import { strings } from "../strings";

export const MODALITIES = [
  "text",
  "messages",
  "tokens",
  "image",
  "pixels",
  "audio",
  "waveform",
  "codes",
  "latents",
  "embeddings",
  "features",
  "actions",
  "state",
  "scalar",
  "flag",
  "tensor",
] as const;
/** Modalities whose values are no tensors or texts: they are not stacked, joined or sliced. */
export const MEDIA: ReadonlySet<string> = new Set(["image", "audio", "messages"]);
const DTYPES = ["float", "int", "bool", "str", "bytes"] as const;
export const LOOP_INDEX = "scalar: int";

export interface PortType {
  modality: string;
  dtype: string | null;
  /** Numbers are fixed sizes, names are symbols of their owner, `...` stands for any leading sizes. */
  shape: readonly (string | number)[] | null;
  /** A list of such values. */
  many: boolean;
}

const TYPE = /^\s*(list\s+of\s+)?([a-z_]+)\s*(?::\s*([a-z]+)\s*(?:\[([^\]]*)\])?)?\s*$/;
const SIZE = /^(?:[a-z_][a-z0-9_]*|\d+|\.\.\.)$/;
const read = new Map<string, PortType | null>();

/** `latents: float[n, 64]` -> its parts; null for what is no port type. */
export function parseType(text: string): PortType | null {
  let found = read.get(text);
  if (found === undefined) {
    found = readType(text);
    read.set(text, found);
  }
  return found;
}

function readType(text: string): PortType | null {
  const [, list, modality = "", dtype = null, sizes = null] = TYPE.exec(text) ?? [];
  const many = list !== undefined;
  if (!(MODALITIES as readonly string[]).includes(modality)) return null;
  if (dtype !== null && !(DTYPES as readonly string[]).includes(dtype)) return null;
  if (sizes === null) return { modality, dtype, shape: null, many };
  const parts = sizes.trim() ? sizes.split(",").map((size) => size.trim()) : [];
  if (!parts.every((size) => SIZE.test(size))) return null;
  return { modality, dtype, shape: parts.map((size) => (/^\d+$/.test(size) ? Number(size) : size)), many };
}

/** null if a `source` value may enter a `target` port, or either type can't be known; otherwise the reason. */
export function accepts(target: string | PortType | null, source: string | PortType | null): string | null {
  const want = typeof target === "string" ? parseType(target) : target;
  const have = typeof source === "string" ? parseType(source) : source;
  if (!want || !have) return null;
  if (want.modality !== have.modality) return strings.document.doesNotFit(have.modality, want.modality);
  if (want.many !== have.many)
    return have.many ? strings.document.aListDoesNotFit : strings.document.aSingleValueDoesNotFit;
  if (want.dtype && have.dtype && want.dtype !== have.dtype)
    return strings.document.dtypeDoesNotFit(have.dtype, want.dtype);
  if (!want.shape || !have.shape || want.shape.includes("...") || have.shape.includes("...")) return null;
  if (want.shape.length !== have.shape.length)
    return strings.document.shapeHasAxesExpected(listed(have.shape), have.shape.length, want.shape.length);
  for (const [axis, size] of want.shape.entries()) {
    const given = have.shape[axis];
    if (typeof size === "number" && typeof given === "number" && size !== given)
      return strings.document.sizeDoesNotFit(given, size, listed(want.shape));
  }
  return null;
}

function listed(shape: readonly (string | number)[]): string {
  return `[${shape.map((size) => (typeof size === "number" ? size : `'${size}'`)).join(", ")}]`;
}

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

export function componentOf(graph: GraphDocument, catalogue: Catalogue, node: string): Component | null {
  const found = graph.nodes?.[node];
  return (found && catalogue[found.component]) ?? null;
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
