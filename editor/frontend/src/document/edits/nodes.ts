// Component nodes, and the states and weights that they share.
import type { Catalogue, Component } from "../../messages/answers";
import { freshName, splitReference } from "../names";
import { declaredFor } from "../ports";
import { factsOf } from "../routes";
import type { GraphDocument, Item, Literal, Node, State, Weights } from "../types";
import { changeNode, freeName, nodeOf, own, streamsOf, walkOf } from "./parts/document";
import { refitted } from "./edges";
import { removeItems } from "./items";
import { changeLayout, rekeyed } from "./parts/layout";
import { settle, takeApart } from "./parts/pieces";
import {
  EditRefused,
  mapped,
  mappedList,
  withFields,
  withKey,
  withPart,
  withRenamed,
  withSection,
} from "./parts/records";
import { renamedOwner, renameUse } from "./parts/references";
import { strings } from "../../strings";

// ── nodes ───────────────────────────────────────────────────────────────────────────────────────

export interface NodeOptions {
  name?: string;
  params?: Record<string, Literal>;
  /** With it, a component that reads weights gets those that fit, where the graph has just one entry of them. */
  catalogue?: Catalogue;
}

/** The graph's entries that a component can read. */
export function fittingWeights(graph: GraphDocument, component: Component | undefined): string[] {
  return Object.entries(graph.weights ?? {}).flatMap(([key, { family }]) =>
    component?.families.includes(family) ? key : [],
  );
}

/** A node of a component; named after the component's role, or the task, unless `name` says otherwise. */
export function addNode(
  graph: GraphDocument,
  component: string,
  options: NodeOptions = {},
): { graph: GraphDocument; name: string } {
  const taken = Object.keys(graph.nodes ?? {});
  if (options.name !== undefined) freeName(strings.document.aNode, options.name, taken);
  const name = options.name ?? freshName(component.replace(/^[^./]*[./]/, ""), taken);
  const fitting = fittingWeights(graph, options.catalogue?.[component]);
  const weights = fitting.length === 1 ? fitting[0] : undefined;
  const params = options.params && Object.keys(options.params).length ? options.params : undefined;
  const node = withFields({ component } as Node, { weights, params });
  return { graph: withSection(graph, "nodes", { ...graph.nodes, [name]: node }), name };
}

/** Take a node away, with its uses in all Walks and their edges. */
export function removeNode(graph: GraphDocument, name: string): GraphDocument {
  nodeOf(graph, name);
  const unused = Object.entries(graph.walks ?? {}).reduce((made, [walk, body]) => {
    const ids = factsOf(body).list.flatMap((entry) => (entry.kind === "use" && entry.node === name ? entry.id : []));
    return ids.length ? removeItems(made, walk, ids) : made;
  }, graph);
  const made = withSection(unused, "nodes", withKey(unused.nodes!, name, undefined));
  return changeLayout(made, { kind: "components" }, (layout) =>
    rekeyed(layout, (key) => (key === name ? undefined : key)),
  );
}

/**
 * Another name for a node, followed everywhere. Its uses take it too, except where they have a name of their own, or
 * where the Walk has another use of that name: those keep theirs.
 */
export function renameNode(graph: GraphDocument, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  nodeOf(graph, from);
  freeName(strings.document.aNode, to, Object.keys(graph.nodes ?? {}));
  const following = new Set(walksThatFollow(graph, from, to));
  const renamed = withSection(graph, "nodes", withRenamed(graph.nodes!, from, to));
  const walked = Object.keys(graph.walks ?? {}).reduce((made, walk) => {
    const follows = following.has(walk);
    return playedBy(follows ? renameUse(made, walk, from, to) : made, walk, from, to, follows);
  }, renamed);
  const streams = mappedList(streamsOf(walked), (stream) =>
    stream.walks.some((walk) => following.has(walk))
      ? withKey(stream, "from", renamedOwner(stream.from, from, to))
      : stream,
  );
  const streamed = walked.streams ? withSection(walked, "streams", streams) : walked;
  return changeLayout(streamed, { kind: "components" }, (layout) =>
    rekeyed(layout, (key) => (key === from ? to : key)),
  );
}

/** Walks in which a use is called like its node, and can be called like the node's new name. */
function walksThatFollow(graph: GraphDocument, from: string, to: string): string[] {
  const can = Object.entries(graph.walks ?? {}).flatMap(([walk, body]) => {
    const { uses } = factsOf(body);
    return uses.get(from)?.node === from && !uses.has(to) ? [walk] : [];
  });
  // A stream names one use for all of its Walks: they follow together or not at all.
  const together = (walks: string[]): string[] => {
    const held = streamsOf(graph).filter(
      (stream) =>
        splitReference(stream.from)[0] === from &&
        stream.walks.some((walk) => walks.includes(walk)) &&
        stream.walks.some((walk) => !walks.includes(walk) && own(graph.walks, walk)),
    );
    const left = walks.filter((walk) => !held.some((stream) => stream.walks.includes(walk)));
    return left.length === walks.length ? walks : together(left);
  };
  return together(can);
}

/** The uses of a Walk that play `from` play `to`; those named after it keep the name unless the Walk follows. */
function playedBy(graph: GraphDocument, walk: string, from: string, to: string, follows: boolean): GraphDocument {
  const uses = factsOf(walkOf(graph, walk)).list.filter((entry) => entry.kind === "use" && entry.node === from);
  if (!uses.length) return graph;
  const body = takeApart(graph, walk);
  for (const { id, item, name } of uses) {
    const piece = body.byId.get(id)!;
    const named = follows && name === from ? to : name;
    piece.item =
      typeof item === "string" && named === to
        ? to
        : (withFields(typeof item === "string" ? { use: to } : { ...(item as object), use: to }, {
            as: named === to ? null : named,
          }) as Item);
  }
  return settle(graph, walk, body).graph;
}

/** Set a parameter; undefined takes the component's default. */
export function setNodeParam(
  graph: GraphDocument,
  node: string,
  param: string,
  value: Literal | undefined,
): GraphDocument {
  return changeNode(graph, node, (old) => withPart(old, "params", withKey(old.params ?? {}, param, value)));
}

export function setNodeWeights(graph: GraphDocument, node: string, weights: string | null): GraphDocument {
  if (weights !== null && !own(graph.weights, weights))
    throw new EditRefused(strings.document.thereAreNoWeights(weights));
  return changeNode(graph, node, (old) => withKey(old, "weights", weights ?? undefined));
}

/** Keep a node's outputs by the contents of its inputs, for runs of one key or for all; null: don't. */
export function setNodeKept(graph: GraphDocument, node: string, kept: Node["kept"]): GraphDocument {
  return changeNode(graph, node, (old) => withKey(old, "kept", kept ?? undefined));
}

/** Bind a component's slot to a state of the graph; null leaves it without one. */
export function setNodeState(graph: GraphDocument, node: string, slot: string, state: string | null): GraphDocument {
  if (state !== null && !own(graph.states, state)) throw new EditRefused(strings.document.thereIsNoState(state));
  return changeNode(graph, node, (old) =>
    withPart(old, "states", withKey(old.states ?? {}, slot, state ?? undefined)),
  );
}

/**
 * Let a node be of another component. Its wires stay where a port fits; so do its parameters, states and weights that
 * the new component has, if `catalogue` knows it.
 */
export function setNodeComponent(
  graph: GraphDocument,
  node: string,
  component: string,
  catalogue: Catalogue = {},
): GraphDocument {
  if (nodeOf(graph, node).component === component) return graph;
  const fresh = declaredFor(catalogue, { ...graph.nodes?.[node], component });
  if (!fresh) return changeNode(graph, node, (old) => withKey(old, "component", component));
  const rewired = Object.entries(graph.walks ?? {}).reduce(
    (made, [walk, body]) =>
      factsOf(body).list.reduce(
        (changed, entry) =>
          entry.kind === "use" && entry.node === node
            ? refitted(changed, walk, entry.name, { inputs: fresh.inputs, outputs: fresh.outputs }, catalogue)
            : changed,
        made,
      ),
    graph,
  );
  const slots = new Set(fresh.states.map(({ slot }) => slot));
  return changeNode(rewired, node, (old) => {
    const params = old.params && only(old.params, (key) => key in fresh.params);
    const states = old.states && only(old.states, (key) => slots.has(key));
    const keeps = old.weights != null && fittingWeights(rewired, fresh).includes(old.weights);
    const fitted = withPart(withPart({ ...old, component }, "params", params), "states", states);
    const made = fresh.deterministic ? fitted : withKey(fitted, "kept", undefined);
    return keeps ? made : withKey(made, "weights", undefined);
  });
}

function only<T>(record: Record<string, T>, keep: (key: string) => boolean): Record<string, T> {
  const entries = Object.entries(record).filter(([key]) => keep(key));
  return entries.length === Object.keys(record).length ? record : Object.fromEntries(entries);
}

// ── states ──────────────────────────────────────────────────────────────────────────────────────

/** A paged state has to say how much it may hold. */
export function freshState(kind: State["kind"]): State {
  return kind === "paged_kv" ? { kind, capacity: "4096" } : { kind };
}

export function addState(graph: GraphDocument, name: string, state: State): GraphDocument {
  freeName(strings.document.aState, name, Object.keys(graph.states ?? {}));
  return withSection(graph, "states", { ...graph.states, [name]: state });
}

/** Change fields of a state; null takes one away. */
export function setState(graph: GraphDocument, name: string, fields: Partial<State>): GraphDocument {
  const state = stateOf(graph, name);
  return withSection(graph, "states", withKey(graph.states!, name, withFields(state, fields)));
}

/** Another name for a state, followed in nodes and forks. */
export function renameState(graph: GraphDocument, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  stateOf(graph, from);
  freeName(strings.document.aState, to, Object.keys(graph.states ?? {}));
  const made = withSection(graph, "states", withRenamed(graph.states!, from, to));
  const named = changeNodes(made, (node) =>
    node.states
      ? withKey(
          node,
          "states",
          mapped(node.states, (state) => (state === from ? to : state)),
        )
      : node,
  );
  return Object.keys(graph.walks ?? {}).reduce((changed, walk) => {
    const forks = factsOf(walkOf(changed, walk)).list.filter((entry) => entry.kind === "fork");
    if (!forks.length) return changed;
    const body = takeApart(changed, walk);
    for (const { id } of forks) {
      const piece = body.byId.get(id)!;
      for (const key of ["fork", "into"] as const)
        if ((piece.item as unknown as Record<string, unknown>)[key] === from)
          piece.item = withKey(piece.item as object, key, to) as Item;
    }
    return settle(changed, walk, body).graph;
  }, named);
}

/** Take a state away, with the bindings of nodes to it and the forks of it. */
export function removeState(graph: GraphDocument, name: string): GraphDocument {
  stateOf(graph, name);
  const unbound = changeNodes(graph, (node) => {
    if (!node.states || !Object.values(node.states).includes(name)) return node;
    const left = Object.entries(node.states).filter(([, state]) => state !== name);
    return withPart(node, "states", Object.fromEntries(left));
  });
  const forked = Object.entries(unbound.walks ?? {}).reduce((made, [walk, body]) => {
    const forks = factsOf(body).list.filter(
      ({ kind, item }) => kind === "fork" && Object.values(item as object).includes(name),
    );
    return forks.length
      ? removeItems(
          made,
          walk,
          forks.map((entry) => entry.id),
        )
      : made;
  }, unbound);
  return withSection(forked, "states", withKey(forked.states!, name, undefined));
}

// ── weights ─────────────────────────────────────────────────────────────────────────────────────

export function addWeights(graph: GraphDocument, name: string, weights: Weights): GraphDocument {
  freeName("weights", name, Object.keys(graph.weights ?? {}));
  return withSection(graph, "weights", { ...graph.weights, [name]: weights });
}

export function setWeights(graph: GraphDocument, name: string, fields: Partial<Weights>): GraphDocument {
  return withSection(graph, "weights", withKey(graph.weights!, name, withFields(weightsOf(graph, name), fields)));
}

export function renameWeights(graph: GraphDocument, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  weightsOf(graph, from);
  freeName("weights", to, Object.keys(graph.weights ?? {}));
  const made = withSection(graph, "weights", withRenamed(graph.weights!, from, to));
  return changeNodes(made, (node) => (node.weights === from ? withKey(node, "weights", to) : node));
}

/** Take weights away; nodes that read them have none then. */
export function removeWeights(graph: GraphDocument, name: string): GraphDocument {
  weightsOf(graph, name);
  const made = changeNodes(graph, (node) => (node.weights === name ? withKey(node, "weights", undefined) : node));
  return withSection(made, "weights", withKey(made.weights!, name, undefined));
}

// ── shared ──────────────────────────────────────────────────────────────────────────────────────

function changeNodes(graph: GraphDocument, change: (node: Node) => Node): GraphDocument {
  return graph.nodes ? withSection(graph, "nodes", mapped(graph.nodes, change)) : graph;
}

function stateOf(graph: GraphDocument, name: string): State {
  const state = own(graph.states, name);
  if (!state) throw new EditRefused(strings.document.thereIsNoState(name));
  return state;
}

function weightsOf(graph: GraphDocument, name: string): Weights {
  const weights = own(graph.weights, name);
  if (!weights) throw new EditRefused(strings.document.thereAreNoWeights(name));
  return weights;
}
