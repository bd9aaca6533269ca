// Blueprints of a graph: what nodes that stand for one look like, and their inside as a graph of its own. Pure.
import type { Catalogue, Component, Port } from "../../messages/answers";
import { componentOf, portType } from "../ports";
import { factsOf } from "../routes";
import type { Blueprint, GraphDocument, Walk } from "../types";
import { strings } from "../../strings";

export const BLUEPRINT = "blueprint.";
export const BLUEPRINTS = "Blueprints";

/** The blueprint that a node's component names; null if it names none. */
export function blueprintOf(component: string): string | null {
  return component.startsWith(BLUEPRINT) ? component.slice(BLUEPRINT.length) : null;
}

/** The catalogue with a component for each blueprint of the graph. */
export function withBlueprints(catalogue: Catalogue, graph: GraphDocument): Catalogue {
  const names = Object.keys(graph.blueprints ?? {});
  if (!names.length) return catalogue;
  // Former names of components are not listed, and stay so.
  const known = Object.defineProperties({}, Object.getOwnPropertyDescriptors(catalogue)) as Record<string, Component>;
  const begun = new Set<string>();
  const declare = (name: string): void => {
    const blueprint = graph.blueprints?.[name];
    if (!blueprint || begun.has(name)) return;
    begun.add(name);
    for (const node of Object.values(blueprint.nodes ?? {})) {
      const inner = blueprintOf(String(node.component));
      if (inner !== null) declare(inner);
    }
    known[BLUEPRINT + name] = declared(name, blueprint, insideOf(graph, name), known);
  };
  names.forEach(declare);
  return known;
}

/**
 * The inside of a blueprint as a graph, so that it is shown and edited as one: a Walk of its name with its inputs, and
 * its outputs as results.
 */
export function insideOf(graph: GraphDocument, name: string): GraphDocument {
  const { description, inputs, outputs, params, body, edges, merges, nodes, states, weights, layout } =
    graph.blueprints![name]!;
  const walk: Walk = { inputs, body, edges, merges, results: outputs } as Walk;
  const made = {
    format: graph.format,
    name: graph.name,
    description,
    nodes: nodes ?? {},
    states,
    weights,
    walks: { [name]: withoutUndefined(walk) },
    // Expressions inside read the parameters, as those of a task.
    tasks: { [name]: { outputs: [], params: params ?? {}, steps: [{ walk: name }] } },
    blueprints: graph.blueprints,
    layout,
  };
  return withoutUndefined(made) as unknown as GraphDocument;
}

/** Without the fields that are undefined. */
export function withoutUndefined<T extends object>(value: T): T {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as T;
}

function declared(name: string, blueprint: Blueprint, inside: GraphDocument, known: Catalogue): Component {
  const params = Object.entries(blueprint.params ?? {}).map(([key, param]) => {
    const { type, default: value = null, min = null, max = null, choices = [], description = "" } = param;
    return [key, { type, default: value, min, max, choices: choices as never[], description }] as const;
  });
  const states = Object.entries(blueprint.states ?? {}).map(([slot, { kind }]) => {
    return { slot, kind, access: "write" as const, appends: [], optional: true };
  });
  return {
    name: BLUEPRINT + name,
    category: BLUEPRINTS,
    description: blueprint.description || strings.document.aBlueprintOfThisGraph,
    inputs: Object.entries(blueprint.inputs ?? {}).map(([key, type]): Port => {
      return { name: key, type, optional: isOptional(key, name, inside, known), description: "" };
    }),
    outputs: Object.entries(blueprint.outputs ?? {}).map(([key, output]): Port => {
      const from = typeof output === "string" ? output : output.from;
      const type = portType(inside, known, name, from, "source") ?? "";
      return { name: key, type: gathered(type, output), optional: false, description: "" };
    }),
    params: Object.fromEntries(params),
    states,
    cost: "compute",
    weights: null,
    families: [...new Set(Object.values(blueprint.weights ?? {}).map(({ family }) => family))],
    host: false,
    available: true,
  };
}

/** An input is optional if everything inside that takes it is. */
function isOptional(input: string, name: string, inside: GraphDocument, known: Catalogue): boolean {
  const facts = factsOf(inside.walks![name]!);
  if (facts.heads.some((route) => route.source.kind === "in" && route.source.name === input)) return false;
  const fed = facts.routes.filter((route) => route.source.kind === "in" && route.source.name === input);
  return fed.every(({ target }) => {
    const component = target.entry && componentOf(inside, known, target.entry.node);
    return component?.inputs.find((port) => port.name === target.port)?.optional ?? false;
  });
}

/** The type of what an output gathers from a loop, as far as it is known without sizes. */
function gathered(type: string, output: unknown): string {
  const collect = typeof output === "object" && output !== null && "collect" in output ? output.collect : false;
  if (!collect || !type) return type;
  const modality = type.replace(/:.*$/, "");
  return collect === "list" || ["image", "audio"].includes(modality) ? `list of ${modality}` : modality;
}
