// Facts about runs from the shape of a graph: nodes that a task's steps may call, when a Walk can't run any more, which
// loops an index counts. Pure; facts are kept by the graph's object.
import { factsOf } from "../document/routes";
import type { GraphDocument } from "../document/types";
import { timesOf, type Values } from "./times";

/** Where a Walk stands among the steps of one partition. */
interface Stand {
  partition: number;
  first: number;
  last: number;
}

export interface Steps {
  /** Nodes that a run may call -> the Walks that call them. */
  nodes: ReadonlyMap<string, readonly string[]>;
  walks: ReadonlyMap<string, readonly Stand[]>;
}

const known = new WeakMap<GraphDocument, Map<string, Steps>>();

export function stepsOf(graph: GraphDocument, task: string): Steps {
  const tasks = known.get(graph) ?? new Map<string, Steps>();
  known.set(graph, tasks);
  const found = tasks.get(task) ?? derive(graph, task);
  tasks.set(task, found);
  return found;
}

/** The Walk can't come any more in a run that has reached another. */
export function isOver({ walks }: Steps, walk: string, reached: string): boolean {
  const there = walks.get(reached);
  const here = walks.get(walk);
  if (!here || !there || walk === reached) return false;
  return here.every(({ partition, last }) =>
    there.some((other) => other.partition === partition && last < other.first),
  );
}

/**
 * The node, or the use in a Walk, that stands for the outermost blueprint around one of this name: `refine` for
 * `refine__llm`. The name itself where none does.
 */
export function standingFor(graph: GraphDocument, name: string, walk?: string): string {
  if (!name.includes("__") || !graph.blueprints) return name;
  const uses = walk === undefined ? null : graph.walks?.[walk] && factsOf(graph.walks[walk]).uses;
  const parts = name.split("__");
  for (let count = 1; count < parts.length; count += 1) {
    const outer = parts.slice(0, count).join("__");
    const node = uses ? uses.get(outer)?.node : outer;
    if (node !== undefined && graph.nodes?.[node]?.component.startsWith("blueprint.")) return outer;
  }
  return name;
}

/** Names of the loops around a use, whose indices its calls have, outermost first; null where it isn't there. */
export function loopsAround(graph: GraphDocument, walk: string, use: string): readonly string[] | null {
  const body = graph.walks?.[walk];
  return (body && factsOf(body).uses.get(use)?.loops) ?? null;
}

/** True if a map has this name among the loops of a Walk. */
export function isMap(graph: GraphDocument, walk: string, loop: string): boolean {
  const body = graph.walks?.[walk];
  return body !== undefined && factsOf(body).maps.has(loop);
}

/** Parameters of a run: what it was given, and the task's own for the rest. */
export function paramsOf(graph: GraphDocument, task: string, given: Values): Values {
  const own = Object.entries(graph.tasks?.[task]?.params ?? {}).map(([name, { default: value }]) => [name, value]);
  return { ...Object.fromEntries(own), ...given };
}

/** How often a loop goes around at most in a run with these parameters; null: not known, as how long a map's list is. */
export function loopTimes(graph: GraphDocument, walk: string, loop: string, params: Values): number | null {
  const body = graph.walks?.[walk];
  const entry = body && factsOf(body).list.find(({ kind, name }) => kind === "loop" && name === loop);
  const times: unknown = entry && (entry.item as { times?: unknown }).times;
  return typeof times === "string" || typeof times === "number" ? timesOf(String(times), params) : null;
}

function derive(graph: GraphDocument, task: string): Steps {
  const walks = new Map<string, Stand[]>();
  const steps: unknown = graph.tasks?.[task]?.steps ?? [];
  const partitions = Array.isArray(steps) ? [steps] : Object.values(steps as Record<string, unknown>);
  partitions.forEach((list, partition) => {
    let position = 0;
    const put = (walk: string, first: number, last: number) => {
      const stands = walks.get(walk) ?? [];
      const own = stands.find((stand) => stand.partition === partition);
      if (own) [own.first, own.last] = [Math.min(own.first, first), Math.max(own.last, last)];
      else walks.set(walk, [...stands, { partition, first, last }]);
    };
    for (const step of Array.isArray(list) ? list : []) {
      // The Walks of interleaved parts and of passes come in any order, and again.
      const together = repeats(step);
      const named = walksIn(step);
      named.forEach((walk, index) => {
        const at = together ? position : position + index;
        put(walk, at, at);
      });
      position += together ? 1 : Math.max(1, named.length);
    }
  });
  const nodes = new Map<string, string[]>();
  for (const walk of walks.keys()) {
    const body = graph.walks?.[walk];
    const used = body ? factsOf(body).list.filter(({ kind }) => kind === "use") : [];
    for (const node of new Set(used.map((entry) => entry.node))) nodes.set(node, [...(nodes.get(node) ?? []), walk]);
  }
  return { nodes, walks };
}

/** True if a step goes through parts or loops, or one inside it does. */
function repeats(step: unknown): boolean {
  if (typeof step !== "object" || step === null) return false;
  return (
    "for" in step ||
    "loop" in step ||
    Object.entries(step).some(([key, value]) => key !== "with" && key !== "start" && repeats(value))
  );
}

/** Walks that a step names, at any depth, in their order. */
function walksIn(step: unknown): string[] {
  if (Array.isArray(step)) return step.flatMap(walksIn);
  if (typeof step !== "object" || step === null) return [];
  return Object.entries(step).flatMap(([key, value]) => {
    if (key === "walk") return typeof value === "string" ? [value] : [];
    return key === "with" ? [] : walksIn(value);
  });
}
