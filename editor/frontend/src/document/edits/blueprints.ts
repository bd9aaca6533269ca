// Edits of blueprints: another inside, other names.
import { BLUEPRINT, withoutUndefined } from "../blueprints/inside";
import { renameParam } from "../expressions";
import { isName } from "../names";
import { factsOf } from "../routes";
import type { Blueprint, GraphDocument, Item, Literal, Node, Walk } from "../types";
import { strings } from "../../strings";
import { EditRefused, withKey, type Fields } from "./parts/records";
import { mapItems } from "./parts/references";
import { renameTaskParam } from "./tasks";

/** The graph with another inside of a blueprint. */
export function withInside(graph: GraphDocument, name: string, inside: GraphDocument): GraphDocument {
  // It has one Walk, whatever its tab is called.
  const walk = inside.walks?.[name] ?? Object.values(inside.walks ?? {})[0];
  if (!walk) return graph;
  const { inputs, body, edges, merges, results } = walk;
  const { description, nodes, states, weights, layout } = inside;
  const before = graph.blueprints![name]!;
  const listed = inside.tasks?.[name]?.params ?? {};
  const params = before.params || Object.keys(listed).length ? listed : undefined;
  const ports = { inputs, outputs: results, body, edges, merges };
  const changed = { ...before, description, ...ports, params, nodes, states, weights, layout };
  const blueprints = { ...graph.blueprints, ...inside.blueprints, [name]: withoutUndefined(changed) as Blueprint };
  return paramsFollowed(portsFollowed({ ...graph, blueprints }, name, before), name, before);
}

/** Another name for a parameter, on the inside of a blueprint: all that reads it is there. */
export function renameInside(inside: GraphDocument, name: string, from: string, to: string): GraphDocument {
  const renamed = renameTaskParam(inside, name, from, to);
  if (renamed === inside) return inside;
  const said = <T>(value: T): T => (typeof value === "string" ? (renameParam(value, from, to) as T) : value);
  const fields = <T extends object>(record: T, keys: readonly string[]): T =>
    keys.reduce((made, key) => (key in made ? withKey(made, key, said((made as Fields)[key])) : made), record);
  const item = (one: Item): Item =>
    typeof one === "object" && !Array.isArray(one) ? (fields(one, EXPRESSIONS) as Item) : one;
  const param = (value: Literal): Literal =>
    typeof value === "string" && value.startsWith("=") ? said(value) : value;
  return {
    ...renamed,
    states: mapped(renamed.states, (state) => fields(state, ["width", "capacity"])),
    nodes: mapped(renamed.nodes, (node) => (node.params ? { ...node, params: mapped(node.params, param) } : node)),
    walks: mapped(renamed.walks, (walk) => ({ ...walk, body: mapItems(walk.body, item) })),
  } as GraphDocument;
}

/** The keys of items that hold expressions. */
const EXPRESSIONS = ["when", "times", "bound", "width"];

/** The graph after a parameter of a blueprint got another name, or is gone: the values that nodes give follow. */
function paramsFollowed(graph: GraphDocument, name: string, before: Blueprint): GraphDocument {
  const after = graph.blueprints![name]!.params ?? {};
  const gone = Object.keys(before.params ?? {}).filter((key) => !(key in after));
  if (!gone.length) return graph;
  const pair = renamed(before.params, after);
  const follow = (node: Node): Node => {
    if (node.component !== BLUEPRINT + name || !node.params) return node;
    const left = Object.entries(node.params).flatMap(([key, value]) => {
      if (pair?.[0] === key) return [[pair[1], value] as const];
      return gone.includes(key) ? [] : [[key, value] as const];
    });
    return withKey(node, "params", left.length ? Object.fromEntries(left) : undefined);
  };
  return {
    ...graph,
    nodes: mapped(graph.nodes, follow),
    blueprints: mapped(graph.blueprints, (one) => (one.nodes ? { ...one, nodes: mapped(one.nodes, follow) } : one)),
  } as GraphDocument;
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
