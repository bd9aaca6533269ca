// What mends a problem by itself: for those that have one sure way, or two to choose from. Pure.
import * as edits from "../../document/edits";
import { freshName, readLink, splitReference } from "../../document/names";
import { at, join, split } from "../../document/pointer";
import { componentOf, portType } from "../../document/ports";
import { factsOf } from "../../document/routes";
import type { GraphDocument, Link, Literal, State, TaskInput, WalkStep } from "../../document/types";
import type { Catalogue, Problem } from "../../messages/answers";
import { strings } from "../../strings";
import { offers } from "../../tasks/model/outputs";
import { options } from "../../tasks/model/bindings";
import { walkRows } from "../../tasks/model/rows";
import { walksOf } from "../../document/union";
import { itemOf, modalityOf } from "../../ui/modality";

export interface Repair {
  /** On the button, and as the name of the step to undo. */
  label: string;
  edit: (graph: GraphDocument) => GraphDocument;
}

interface Place {
  graph: GraphDocument;
  catalogue: Catalogue;
  pointer: string;
  /** The pointer's parts. */
  path: string[];
}

/** Modalities that a request can give. */
const GIVEN = new Set(["text", "image", "audio", "video", "state", "actions", "messages"]);

const words = strings.panels;

export function repairsOf(graph: GraphDocument, catalogue: Catalogue, { code, pointer }: Problem): Repair[] {
  const found = REPAIRS[code]?.({ graph, catalogue, pointer, path: split(pointer) });
  return found ? [found].flat() : [];
}

/** Code of a problem -> what mends it; null: nothing that is sure. */
const REPAIRS: Readonly<Record<string, (place: Place) => Repair | Repair[] | null>> = {
  missing_state: (place) => stateFor(place, null),
  unknown_state: missingState,
  wrong_state_kind: (place) => stateFor(place, place.path[3] ?? ""),
  unknown_slot: ({ path: [, node = "", , slot = ""] }) =>
    repair(words.unbind(slot), (graph) => edits.setNodeState(graph, node, slot, null)),
  missing_capacity: ({ path: [, name = ""] }) => {
    const { capacity } = edits.freshState("paged_kv");
    return repair(words.setCapacity(String(capacity)), (graph) =>
      edits.setState(graph, name, { capacity: capacity! }),
    );
  },
  needless_capacity: ({ path: [, name = ""] }) =>
    repair(words.removeCapacity, (graph) => edits.setState(graph, name, { capacity: null })),
  missing_weights: weightsFor,
  unknown_weights: weightsFor,
  wrong_family: weightsFor,
  needless_weights: ({ path: [, node = ""] }) =>
    repair(words.readNoWeights, (graph) => edits.setNodeWeights(graph, node, null)),
  not_deterministic: ({ path: [, node = ""] }) =>
    repair(words.keepNoResults, (graph) => edits.setNodeKept(graph, node, null)),
  former_name: ({ graph, catalogue, path: [, node = ""] }) => {
    const name = componentOf(graph, catalogue, node)?.name;
    if (name === undefined) return null;
    return repair(words.callIt(name), (now) => edits.setNodeComponent(now, node, name, catalogue));
  },
  unknown_param: ({ path: [, node = "", , param = ""] }) =>
    repair(words.removeNamed(param), (graph) => edits.setNodeParam(graph, node, param, undefined)),
  unconnected_input: feeding,
  unknown_input: (place) => (place.path[0] === "tasks" ? boundTo(place) : walkInput(place)),
  unbound_input: bindings,
  unknown_use: withoutWire,
  unknown_port: withoutWire,
  unknown_stream: withoutWire,
  each_without_loop: (place) => withoutFlag(place, "each"),
  collect_without_loop: (place) => withoutFlag(place, "collect"),
  each_and_collect: (place) => withoutFlag(place, "each"),
  absent_value: needed,
  output_never_sent: withoutOutput,
  no_outputs: onlyOutput,
  unused_node: ({ graph, path: [, name = ""] }) => withoutNode(graph, name),
  unused_state: ({ path: [, name = ""] }) => removing(name, (graph) => edits.removeState(graph, name)),
  unused_weights: ({ path: [, name = ""] }) => removing(name, (graph) => edits.removeWeights(graph, name)),
  unused_stream: ({ graph, path: [, index = ""] }) => {
    const name = graph.streams?.[Number(index)]?.name;
    return name === undefined ? null : removing(name, (now) => edits.removeStream(now, name));
  },
  unused_walk: ({ graph, catalogue, path: [, name = ""] }) => [
    ...taskOf(graph, catalogue, name),
    repair(words.removeWithItsOwn(name), (now) => withoutWalk(now, name)),
  ],
  unused_input: withoutInput,
  input_without_steps: ({ path: [, task = "", , name = ""] }) =>
    removing(name, (graph) => edits.removeTaskInput(graph, task, name)),
  unused_parameter: ({ path: [, task = "", , name = ""] }) =>
    removing(name, (graph) => edits.removeTaskParam(graph, task, name)),
};

/** The codes of problems that can be mended here. */
export const MENDED: readonly string[] = Object.keys(REPAIRS);

function repair(label: string, edit: Repair["edit"]): Repair {
  return { label, edit };
}

function removing(name: string, edit: Repair["edit"]): Repair {
  return repair(words.removeNamed(name), edit);
}

/** Without the node and what nothing else keeps or reads. */
function withoutNode(graph: GraphDocument, name: string): Repair {
  const made = cleared(graph, [name]);
  const alone = made.states === graph.states && made.weights === graph.weights;
  return repair(alone ? words.removeNamed(name) : words.removeWithItsOwn(name), (now) => cleared(now, [name]));
}

function withoutWalk(graph: GraphDocument, walk: string): GraphDocument {
  const own = factsOf(graph.walks![walk]!).list.flatMap(({ kind, node }) => (kind === "use" ? [node] : []));
  const made = edits.removeWalk(graph, walk);
  const nodes = [...new Set(own)].filter((node) => made.nodes?.[node] && !walksOf(made, node).length);
  return cleared(made, nodes);
}

function cleared(graph: GraphDocument, names: readonly string[]): GraphDocument {
  const gone = names.map((name) => graph.nodes?.[name]);
  const made = names.reduce((now, name) => edits.removeNode(now, name), graph);
  const left = Object.values(made.nodes ?? {});
  const weights = new Set(gone.flatMap((node) => node?.weights ?? []));
  const states = new Set(gone.flatMap((node) => Object.values(node?.states ?? {})));
  const free = [...states].filter(
    (state) => made.states?.[state] && !left.some((node) => Object.values(node.states ?? {}).includes(state)),
  );
  return free.reduce((now, name) => edits.removeState(now, name), withoutUnread(made, [...weights]));
}

/** Without those of these weights that no node reads. */
function withoutUnread(graph: GraphDocument, weights: readonly string[]): GraphDocument {
  const read = new Set(Object.values(graph.nodes ?? {}).map((node) => node.weights));
  const lone = weights.filter((key) => graph.weights?.[key] && !read.has(key));
  return lone.reduce((now, name) => edits.removeWeights(now, name), graph);
}

// ── nodes ───────────────────────────────────────────────────────────────────────────────────────

/** The slot's one state, or for all slots without one that must have one. */
function stateFor({ graph, catalogue, path: [, name = ""] }: Place, slot: string | null): Repair | null {
  const node = graph.nodes?.[name];
  const slots = (componentOf(graph, catalogue, name)?.states ?? []).filter((one) =>
    slot === null ? !one.optional && node?.states?.[one.slot] === undefined : one.slot === slot,
  );
  const [first] = slots;
  if (!node || !first) return null;
  const bound = new Set(Object.values(graph.nodes ?? {}).flatMap((one) => Object.values(one.states ?? {})));
  const found = slots.map(({ slot: key, kind }) => {
    const all = Object.entries(graph.states ?? {}).flatMap(([state, own]) => (own.kind === kind ? state : []));
    const free = all.filter((state) => !bound.has(state));
    // A cache may be shared on purpose; what else a node keeps is its own.
    const fitting = free.length === 1 || kind !== "paged_kv" ? free : all;
    // Another slot of the node doesn't get the same one.
    if (fitting.length === 1) bound.add(fitting[0]!);
    return { key, kind, fitting };
  });
  if (found.some(({ fitting }) => fitting.length > 1)) return null;
  const known = found.flatMap(({ fitting }) => fitting);
  const label = known.length === found.length ? words.keepIn(known.join(", ")) : words.addAState(name);
  return repair(label, (before) =>
    found.reduce((made, { key, kind, fitting: [state] }) => {
      if (state !== undefined) return edits.setNodeState(made, name, key, state);
      return withState(made, name, key, kind, freshName(name, Object.keys(made.states ?? {})));
    }, before),
  );
}

function withState(graph: GraphDocument, node: string, slot: string, kind: State["kind"], state: string) {
  return edits.setNodeState(edits.addState(graph, state, edits.freshState(kind)), node, slot, state);
}

/** The state that a slot names, where there is none of the name. */
function missingState({ graph, catalogue, path: [section, name = "", , slot = ""] }: Place): Repair | null {
  if (section !== "nodes") return null;
  const state = graph.nodes?.[name]?.states?.[slot];
  const kind = componentOf(graph, catalogue, name)?.states.find((one) => one.slot === slot)?.kind;
  if (state === undefined || !kind) return null;
  return repair(words.addTheState(state), (now) => edits.addState(now, state, edits.freshState(kind)));
}

/** The only weights that fit, or new ones of the only family that does. */
function weightsFor({ graph, catalogue, path: [, name = ""] }: Place): Repair | null {
  const component = componentOf(graph, catalogue, name) ?? undefined;
  const fitting = edits.fittingWeights(graph, component);
  const [only] = fitting;
  if (fitting.length > 1) return null;
  const former = graph.nodes?.[name]?.weights;
  if (only !== undefined)
    return repair(words.read(only), (now) =>
      withoutUnread(edits.setNodeWeights(now, name, only), former ? [former] : []),
    );
  const [family, ...others] = component?.families ?? [];
  if (family === undefined || others.length) return null;
  const taken = Object.keys(graph.weights ?? {});
  const key = former && !taken.includes(former) ? former : freshName(family, taken);
  return repair(words.addTheWeights(key), (now) =>
    edits.setNodeWeights(edits.addWeights(now, key, { family, source: `checkpoint:${family}` }), name, key),
  );
}

// ── wires ───────────────────────────────────────────────────────────────────────────────────────

/** From the only source that fits, or from a new input of the Walk. */
function feeding(place: Place): Repair[] {
  const { graph, catalogue, path } = place;
  const walk = path[1] ?? "";
  const body = graph.walks?.[walk];
  const facts = body && factsOf(body);
  const entry = facts?.list.find((one) => join("walks", walk) + one.pointer === place.pointer);
  if (!facts || !entry) return [];
  const port = componentOf(graph, catalogue, entry.node)?.inputs.find(
    (one) => !one.optional && !facts.feeds.has(`${entry.name}.${one.name}`),
  );
  if (!port) return [];
  const target = `${entry.name}.${port.name}`;
  const whyNot = edits.compatible(graph, walk, "target", target, catalogue);
  const earlier = [...facts.uses.values()].filter(({ order }) => order < entry.order);
  const sources = [
    ...Object.keys(body.inputs ?? {}).map((input) => `@in.${input}`),
    ...earlier.flatMap((use) =>
      (componentOf(graph, catalogue, use.node)?.outputs ?? []).map((one) => `${use.name}.${one.name}`),
    ),
  ].filter((source) => whyNot(source) === null);
  const read = new Set(facts.routes.map(({ from }) => from));
  const unread = sources.filter((source) => !read.has(source));
  const only = unread.length === 1 ? unread[0] : sources.length === 1 ? sources[0] : undefined;
  const wired =
    only === undefined
      ? []
      : [repair(words.connectIt(only, target), (now) => edits.connect(now, walk, only, target, catalogue).graph)];
  const name = freshName(port.name, Object.keys(body.inputs ?? {}));
  const fed = withInput(
    place,
    walk,
    name,
    port.type,
    (now) => edits.connect(now, walk, `@in.${name}`, target, catalogue).graph,
  );
  return fed ? [...wired, fed] : wired;
}

/** The input that a wire names, of the type that its port takes. */
function walkInput(place: Place): Repair | null {
  const { graph, catalogue, path } = place;
  const [, walk = "", , index = ""] = path;
  const link = graph.walks?.[walk]?.edges?.[Number(index)];
  if (path[2] !== "edges" || link === undefined) return null;
  const { from, to } = readLink(link as Link);
  const type = portType(graph, catalogue, walk, to, "target");
  return type ? withInput(place, walk, splitReference(from)[1], type, (now) => now) : null;
}

/** An input more, bound in the steps of all tasks that use the Walk. */
function withInput(
  { graph, catalogue }: Place,
  walk: string,
  name: string,
  type: string,
  then: Repair["edit"],
): Repair | null {
  const steps = stepsWith(graph, walk);
  if (steps.length && !asked(type)) return null;
  return repair(words.addTheInput(name), (now) =>
    steps.reduce(
      (made, { task, pointer }) => bind(made, catalogue, task, pointer, name),
      then(edits.addInput(now, walk, name, type)),
    ),
  );
}

function withoutWire({ path: [section, walk = "", part, index = ""] }: Place): Repair | null {
  if (section !== "walks" || part !== "edges") return null;
  return repair(words.removeTheWire, (graph) => edits.removeEdges(graph, walk, [Number(index)]));
}

/** Where no task gives it anything that no other step takes. */
function withoutInput({ graph, path: [, walk = "", , name = ""] }: Place): Repair | null {
  const without = (now: GraphDocument) => edits.removeInput(now, walk, name);
  const made = without(graph);
  const taken = (one: GraphDocument, task: string, input: string) =>
    JSON.stringify(one.tasks?.[task]?.steps ?? []).includes(`"@task.${input}"`);
  const lost = Object.entries(graph.tasks ?? {}).some(([task, { inputs = {} }]) =>
    Object.keys(inputs).some((input) => taken(graph, task, input) && !taken(made, task, input)),
  );
  return lost ? null : removing(name, without);
}

function withoutFlag({ path: [, walk = "", part, index = ""] }: Place, flag: "each" | "collect"): Repair | null {
  if (part !== "edges") return null;
  return repair(words.removeFlag(flag), (graph) => edits.setEdge(graph, walk, Number(index), { [flag]: false }));
}

// ── tasks ───────────────────────────────────────────────────────────────────────────────────────

/** The steps of a Walk, in whichever task; pointers are into the task. */
function stepsWith(graph: GraphDocument, walk: string): { task: string; pointer: string }[] {
  return Object.entries(graph.tasks ?? {}).flatMap(([task, declared]) =>
    walkRows(declared).flatMap(({ step, pointer }) => (step.walk === walk ? { task, pointer } : [])),
  );
}

/** An input of a task for values of a type; null: a request can't give them. */
function asked(type: string): TaskInput | null {
  const modality = itemOf(type);
  if (!GIVEN.has(modality)) return null;
  return modality === modalityOf(type) ? { modality } : { modality, many: true };
}

/** Binds an input of a step: to this part, or the one input of the request that fits, or a new one. */
function bind(
  graph: GraphDocument,
  catalogue: Catalogue,
  task: string,
  pointer: string,
  input: string,
): GraphDocument {
  const declared = graph.tasks?.[task];
  const row = declared && walkRows(declared).find((one) => one.pointer === pointer);
  const type = row && graph.walks?.[row.step.walk]?.inputs?.[input];
  if (!declared || !row || type === undefined || row.step.with?.[input] !== undefined) return graph;
  const given = new Set(["@part", ...Object.keys(declared.inputs ?? {}).map((one) => `@task.${one}`)]);
  const fitting = options(graph, catalogue, declared, row, String(type)).filter(
    ({ refused, value }) => refused === null && given.has(value),
  );
  const to = (made: GraphDocument, value: Literal) =>
    edits.setStep(made, task, pointer, { with: { ...row.step.with, [input]: value } });
  const [first] = fitting;
  if (first) return to(graph, first.value);
  const wanted = asked(String(type));
  if (!wanted) return graph;
  const name = freshName(input, [
    ...Object.keys(declared.inputs ?? {}),
    ...Object.keys(declared.params ?? {}),
    "seed",
  ]);
  return to(edits.addTaskInput(graph, task, name, wanted), `@task.${name}`);
}

/** All inputs of the step that it leaves open. */
function bindings({ graph, catalogue, path: [, task = "", ...rest] }: Place): Repair | null {
  const pointer = join(...(rest.at(-1) === "with" ? rest.slice(0, -1) : rest));
  const step = at(graph.tasks?.[task], pointer) as WalkStep | undefined;
  const inputs = Object.entries(graph.walks?.[step?.walk ?? ""]?.inputs ?? {});
  const open = inputs.filter(([name]) => step?.with?.[name] === undefined);
  if (!open.length || open.some(([, type]) => !asked(String(type)))) return null;
  return repair(words.takeFromTheRequest(open.map(([name]) => name).join(", ")), (before) =>
    open.reduce((made, [name]) => bind(made, catalogue, task, pointer, name), before),
  );
}

/** The input of the task that a step takes; where its Walk has no such input, the binding goes. */
function boundTo({ graph, pointer, path: [, task = "", ...rest] }: Place): Repair | null {
  if (rest.at(-2) !== "with") return null;
  const key = rest.at(-1) ?? "";
  const where = join(...rest.slice(0, -2));
  const step = at(graph.tasks?.[task], where) as WalkStep | undefined;
  if (!step) return null;
  const type = graph.walks?.[step.walk]?.inputs?.[key];
  if (type === undefined)
    return repair(words.removeNamed(key), (now) => {
      const { [key]: _, ...left } = step.with ?? {};
      return edits.setStep(now, task, where, { with: Object.keys(left).length ? left : null });
    });
  const name = requestInput(graph, pointer);
  const wanted = asked(String(type));
  return name && wanted
    ? repair(words.addTheTaskInput(name), (now) => edits.addTaskInput(now, task, name, wanted))
    : null;
}

/** The input of the request that a binding names; empty if it names none. */
function requestInput(graph: GraphDocument, pointer: string): string {
  return /^@task\.(.+)$/.exec(String(at(graph, pointer)))?.[1] ?? "";
}

/** The request must give what its Walk needs. */
function needed({ graph, pointer, path: [section, task = ""] }: Place): Repair | null {
  const name = requestInput(graph, pointer);
  if (section !== "tasks" || !graph.tasks?.[task]?.inputs?.[name]?.optional) return null;
  return repair(words.mustBeGiven(name), (now) => edits.setTaskInput(now, task, name, { optional: false }));
}

function withoutOutput({ graph, path: [, task = "", , index = ""] }: Place): Repair | null {
  const outputs = graph.tasks?.[task]?.outputs ?? [];
  const name = outputs[Number(index)];
  if (name === undefined) return null;
  return removing(name, (now) =>
    edits.setTask(now, task, { outputs: outputs.filter((_, position) => position !== Number(index)) }),
  );
}

function onlyOutput({ graph, catalogue, path: [, task = ""] }: Place): Repair | null {
  const declared = graph.tasks?.[task];
  const [only, ...others] = declared ? offers(graph, catalogue, declared).filter(({ here }) => here) : [];
  if (!only || others.length) return null;
  return repair(words.sendIt(only.name), (now) => edits.setTask(now, task, { outputs: [only.name] }));
}

/** A task of this Walk alone, where a request can give what it takes and gets something back. */
function taskOf(graph: GraphDocument, catalogue: Catalogue, walk: string): Repair[] {
  const inputs = Object.entries(graph.walks?.[walk]?.inputs ?? {}).map(
    ([name, type]) => [name, asked(String(type))] as const,
  );
  const step = { walk, ...(inputs.length && { with: Object.fromEntries(inputs.map(([n]) => [n, `@task.${n}`])) }) };
  const sent = offers(graph, catalogue, { outputs: [], steps: [step] }).filter(({ here }) => here);
  if (!sent.length || inputs.some(([, input]) => input === null)) return [];
  return [
    repair(words.addATaskOf(walk), (before) => {
      const { graph: made, name } = edits.addTask(before, freshName(walk, Object.keys(before.tasks ?? {})));
      const asking = inputs.reduce((now, [input, declared]) => edits.addTaskInput(now, name, input, declared!), made);
      return edits.setTask(asking, name, { steps: [step], outputs: sent.map((one) => one.name) });
    }),
  ];
}
