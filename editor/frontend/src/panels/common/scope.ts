// The names that an expression may use at its place: parameters of the tasks that reach it, and the loops around it.
import { entries, flat } from "../../document/tree";
import { evaluate, type Scalar } from "../../document/evaluating";
import { FUNCTIONS } from "../../document/expressions";
import { BRANCHES, branchOf } from "../../document/edits/parts/steps";
import type { ForStep, GraphDocument, Step, TaskParam } from "../../document/types";
import { strings } from "../../strings";

export interface ScopeName {
  /** As the expression writes it. */
  name: string;
  about: string;
  /** Its value where a request gives none: a parameter's default, the first index of a loop. */
  value?: Scalar;
}

const CALLS: readonly ScopeName[] = FUNCTIONS.map(({ name, written, about }) => ({
  name: `${name}(`,
  about: `${written}: ${about}`,
}));

/** The value of an expression for the defaults; null: it has none. */
export function valueOf(text: string, scope: readonly ScopeName[]): Scalar | null {
  const known = scope.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value] as const]));
  const loops = known.filter(([name]) => name.startsWith("@loop."));
  return evaluate(
    text,
    Object.fromEntries(known.filter(([name]) => !name.startsWith("@"))),
    Object.fromEntries(loops.map(([name, value]) => [name.slice("@loop.".length), Number(value)])),
  );
}

/** The Walks that a task's steps name. */
function walksOfTask(graph: GraphDocument, task: string): string[] {
  const steps = graph.tasks?.[task]?.steps;
  const lists = Array.isArray(steps) ? [steps] : Object.values(steps ?? {});
  return [...new Set(lists.flatMap((list) => list.flatMap(walksOfStep)))];
}

function walksOfStep(step: Step): string[] {
  if (typeof step !== "object" || step === null) return [];
  if ("walk" in step) return [step.walk];
  if ("first" in step) return (step.first ?? []).flatMap(walksOfStep);
  if ("for" in step) return BRANCHES.flatMap((kind) => (branchOf(step as ForStep, kind) ?? []).flatMap(walksOfStep));
  if ("loop" in step) return (step.loop ?? []).flatMap(walksOfStep);
  if ("choose" in step) return [...Object.values(step.cases ?? {}), step.otherwise ?? []].flat().flatMap(walksOfStep);
  return [];
}

export function tasksOfWalk(graph: GraphDocument, walk: string): string[] {
  return Object.keys(graph.tasks ?? {}).filter((task) => walksOfTask(graph, task).includes(walk));
}

/** The Walks that use a node. */
function walksOfNode(graph: GraphDocument, node: string): string[] {
  return Object.entries(graph.walks ?? {})
    .filter(([, walk]) => flat(entries(walk)).some((entry) => entry.kind === "use" && entry.node === node))
    .map(([name]) => name);
}

/** In a Walk, with the names of the loops around the place, outermost first. */
export function scopeOfWalk(graph: GraphDocument, walk: string, loops: readonly string[]): ScopeName[] {
  return [...loopNames(loops), ...paramNames(graph, tasksOfWalk(graph, walk)), ...CALLS];
}

/** In a node's parameters: whatever any of its uses can name. */
export function scopeOfNode(graph: GraphDocument, node: string): ScopeName[] {
  const walks = walksOfNode(graph, node);
  const loops = walks.flatMap((walk) =>
    flat(entries(graph.walks![walk]!))
      .filter((entry) => entry.kind === "use" && entry.node === node)
      .flatMap((entry) => entry.loops),
  );
  const tasks = [...new Set(walks.flatMap((walk) => tasksOfWalk(graph, walk)))];
  return [...loopNames([...new Set(loops)]), ...paramNames(graph, tasks), ...CALLS];
}

/** In a state's width and capacity: parameters alone. */
export function scopeOfStates(graph: GraphDocument): ScopeName[] {
  return [...paramNames(graph, Object.keys(graph.tasks ?? {})), ...CALLS];
}

function loopNames(loops: readonly string[]): ScopeName[] {
  if (loops.length === 0) return [];
  const named = loops.map((loop) => ({
    name: `@loop.${loop}`,
    about: strings.panels.indexOfTheLoop(loop),
    value: 0,
  }));
  return [...named, { name: "@loop.index", about: strings.panels.indexOfTheInnermostLoop, value: 0 }];
}

function paramNames(graph: GraphDocument, tasks: readonly string[]): ScopeName[] {
  const found = new Map<string, { param: TaskParam; tasks: string[] }>();
  for (const task of tasks)
    for (const [name, param] of Object.entries(graph.tasks?.[task]?.params ?? {})) {
      if (name.includes("-")) continue;
      const known = found.get(name) ?? { param, tasks: [] };
      found.set(name, { ...known, tasks: [...known.tasks, task] });
    }
  const names = [...found].map(([name, { param, tasks: having }]) => ({
    name,
    ...(param.default == null ? {} : { value: param.default }),
    about: strings.panels.of(
      param.type,
      having.length === tasks.length ? strings.panels.everyTaskHere : having.join(", "),
      param.description ? `: ${param.description}` : "",
    ),
  }));
  return tasks.length
    ? [...names, { name: "seed", about: strings.panels.integerOfEveryTaskRandom, value: 0 }]
    : names;
}
