// Edits of blueprints: another inside, other names.
import { BLUEPRINT, withoutUndefined } from "../blueprints/inside";
import { isName } from "../names";
import { factsOf } from "../routes";
import type { Blueprint, GraphDocument, Walk } from "../types";
import { strings } from "../../strings";
import { EditRefused } from "./parts/records";

/** The graph with another inside of a blueprint. */
export function withInside(graph: GraphDocument, name: string, inside: GraphDocument): GraphDocument {
  // It has one Walk, whatever its tab is called.
  const walk = inside.walks?.[name] ?? Object.values(inside.walks ?? {})[0];
  if (!walk) return graph;
  const { inputs, body, edges, merges, results } = walk;
  const { nodes, states, weights, layout } = inside;
  const before = graph.blueprints![name]!;
  const changed = { ...before, inputs, outputs: results, nodes, states, weights, body, edges, merges, layout };
  const blueprints = { ...graph.blueprints, ...inside.blueprints, [name]: withoutUndefined(changed) as Blueprint };
  return portsFollowed({ ...graph, blueprints }, name, before);
}

/** Another name for a blueprint, followed by the nodes that stand for it. */
export function renameBlueprint(graph: GraphDocument, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  if (!isName(to) || graph.blueprints?.[to]) throw new EditRefused(strings.document.anotherBlueprintsName(to));
  const following = (nodes: GraphDocument["nodes"]) =>
    mapped(nodes, (node) => (node.component === BLUEPRINT + from ? { ...node, component: BLUEPRINT + to } : node));
  const blueprints = Object.fromEntries(
    Object.entries(graph.blueprints ?? {}).map(([name, one]) => [
      name === from ? to : name,
      one.nodes ? { ...one, nodes: following(one.nodes) } : one,
    ]),
  );
  return { ...graph, nodes: following(graph.nodes) ?? {}, blueprints };
}

/** The graph after a port of a blueprint got another name inside: the wires to its nodes follow. */
function portsFollowed(graph: GraphDocument, name: string, before: Blueprint): GraphDocument {
  const after = graph.blueprints![name]!;
  const taken = renamed(before.inputs, after.inputs);
  const given = renamed(before.outputs, after.outputs);
  if (!taken && !given) return graph;
  const follow = <T extends Pick<Walk, "body">>(walk: T, nodes: GraphDocument["nodes"]): T => {
    const uses = [...factsOf(walk as unknown as Walk).uses].filter(
      ([, entry]) => nodes?.[entry.node]?.component === BLUEPRINT + name,
    );
    const names = new Map(
      uses.flatMap(([use]) =>
        [taken, given].flatMap((pair) => (pair ? [[`${use}.${pair[0]}`, `${use}.${pair[1]}`] as const] : [])),
      ),
    );
    return names.size ? (reworded(walk, names) as T) : walk;
  };
  return {
    ...graph,
    walks: mapped(graph.walks, (walk) => follow(walk, graph.nodes)),
    blueprints: mapped(graph.blueprints, (one) => follow(one, one.nodes)),
  } as GraphDocument;
}

/** The one key that has another name now, in its place; null if more is different. */
function renamed(before: object | undefined, after: object | undefined): [from: string, to: string] | null {
  const [was, is] = [Object.keys(before ?? {}), Object.keys(after ?? {})];
  if (was.length !== is.length) return null;
  const [gone, come] = [was.filter((key) => !is.includes(key)), is.filter((key) => !was.includes(key))];
  return gone.length === 1 && come.length === 1 ? [gone[0]!, come[0]!] : null;
}

/** A part of a document with other texts in the place of these. */
function reworded(value: unknown, names: ReadonlyMap<string, string>): unknown {
  if (typeof value === "string") return names.get(value) ?? value;
  if (Array.isArray(value)) return value.map((one) => reworded(one, names));
  if (typeof value !== "object" || value === null) return value;
  return mapped(value as Record<string, unknown>, (one) => reworded(one, names));
}

function mapped<T, V>(record: Record<string, T> | undefined, change: (value: T) => V): Record<string, V> | undefined {
  return record && Object.fromEntries(Object.entries(record).map(([key, value]) => [key, change(value)]));
}
