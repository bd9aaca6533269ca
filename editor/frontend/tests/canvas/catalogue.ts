// A catalogue for the graphs of the repository: every port that an edge names, without a type where none is given.
import type { Catalogue, Component } from "../../src/messages/answers";
import { factsOf } from "../../src/document/routes";
import { producers } from "../../src/document/ports";
import type { GraphDocument } from "../../src/document/types";

const made = new WeakMap<GraphDocument, Catalogue>();

export function portsCatalogue(graph: GraphDocument): Catalogue {
  const known = made.get(graph);
  if (known) return known;
  const found: Record<string, Component> = {};
  const component = (node: string): Component => {
    const name = graph.nodes?.[node]?.component ?? "";
    return (found[name] ??= bare(name));
  };
  const add = (node: string, side: "inputs" | "outputs", port: string) => {
    const ports = component(node)[side];
    if (!ports.some((one) => one.name === port))
      ports.push({ name: port, type: "tensor", optional: true, description: "" });
  };
  for (const node of Object.keys(graph.nodes ?? {})) component(node);
  for (const walk of Object.values(graph.walks ?? {})) {
    const { routes, results, list } = factsOf(walk);
    for (const { source, target } of [...routes, ...results]) {
      if (source.entry) add(source.entry.node, "outputs", source.port);
      if (target.entry) add(target.entry.node, "inputs", target.port);
    }
    for (const { item } of list) {
      const until = (item as { until?: string }).until?.split(".");
      const use = until && factsOf(walk).uses.get(until[0] ?? "");
      if (use) add(use.node, "outputs", until[1] ?? "");
    }
  }
  for (const stream of graph.streams ?? [])
    for (const { node, port } of producers(graph, stream)) add(node, "outputs", port);
  // The Walks' inputs have types of their own; ports without one take any.
  for (const one of Object.values(found)) for (const port of one.inputs) port.type = "";
  made.set(graph, found);
  return found;
}

function bare(name: string): Component {
  const rest = {
    description: "",
    params: {},
    states: [],
    cost: "compute",
    weights: null,
    families: [],
    host: false,
    available: true,
  };
  return { name, inputs: [], outputs: [], ...rest };
}
