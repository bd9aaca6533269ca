// Tasks: what a request gives and gets, and the steps in between. Pointers are relative to the task (`/steps/0/first/1`).
import { canBeNamed, freshName } from "../names";
import { renameParam } from "../expressions";
import { at, join, split } from "../pointer";
import type { ChooseStep, GraphDocument, Pointer, Step, Task, TaskInput, TaskParam, WalkStep } from "../types";
import { changeTask, freeName, own, taskOf } from "./parts/document";
import {
  EditRefused,
  mapped,
  withAfter,
  withFields,
  withKey,
  withPart,
  withRenamed,
  withSection,
} from "./parts/records";
import { mapSteps } from "./parts/steps";
import { strings } from "../../strings";

// ── tasks ───────────────────────────────────────────────────────────────────────────────────────

export function addTask(graph: GraphDocument, name?: string): { graph: GraphDocument; name: string } {
  const taken = Object.keys(graph.tasks ?? {});
  if (name !== undefined) freeName(strings.document.aTask, name, taken);
  const chosen = name ?? freshName("task", taken);
  const task: Task = { outputs: [], steps: [] };
  return { graph: withSection(graph, "tasks", { ...graph.tasks, [chosen]: task }), name: chosen };
}

export function renameTask(graph: GraphDocument, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  taskOf(graph, from);
  freeName(strings.document.aTask, to, Object.keys(graph.tasks!));
  return withSection(graph, "tasks", withRenamed(graph.tasks!, from, to));
}

export function removeTask(graph: GraphDocument, name: string): GraphDocument {
  taskOf(graph, name);
  return withSection(graph, "tasks", withKey(graph.tasks!, name, undefined));
}

/** A copy right after the task. */
export function duplicateTask(graph: GraphDocument, name: string): { graph: GraphDocument; name: string } {
  const task = taskOf(graph, name);
  const copy = freshName(name, Object.keys(graph.tasks!));
  return { graph: withSection(graph, "tasks", withAfter(graph.tasks!, name, copy, task)), name: copy };
}

/** Change fields of a task; undefined or null takes an optional one away. */
export function setTask(graph: GraphDocument, name: string, fields: Partial<Task>): GraphDocument {
  return changeTask(graph, name, (task) => withFields(task, fields));
}

// ── inputs, outputs, parameters ─────────────────────────────────────────────────────────────────

export function addTaskInput(graph: GraphDocument, task: string, name: string, input: TaskInput): GraphDocument {
  freeInTask(taskOf(graph, task), name);
  return changeTask(graph, task, (made) => withPart(made, "inputs", { ...made.inputs, [name]: input }));
}

export function setTaskInput(
  graph: GraphDocument,
  task: string,
  name: string,
  fields: Partial<TaskInput>,
): GraphDocument {
  const input = held("input", taskOf(graph, task).inputs, name);
  return changeTask(graph, task, (made) =>
    withKey(made, "inputs", withKey(made.inputs!, name, withFields(input, fields))),
  );
}

/** Another name for an input, followed in bindings. */
export function renameTaskInput(graph: GraphDocument, task: string, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  const old = taskOf(graph, task);
  held("input", old.inputs, from);
  freeInTask(old, to);
  return changeTask(graph, task, (made) => {
    const named = withKey(made, "inputs", withRenamed(made.inputs!, from, to));
    return withKey(
      named,
      "steps",
      mapSteps(named.steps, (step) => rebound(step, from, to), renamedTask(from, to)),
    );
  });
}

/** Take an input away, with the bindings to it. */
export function removeTaskInput(graph: GraphDocument, task: string, name: string): GraphDocument {
  held("input", taskOf(graph, task).inputs, name);
  return changeTask(graph, task, (made) =>
    unbound(withPart(made, "inputs", withKey(made.inputs!, name, undefined)), name),
  );
}

export function addTaskParam(graph: GraphDocument, task: string, name: string, param: TaskParam): GraphDocument {
  freeParam(taskOf(graph, task), name);
  return changeTask(graph, task, (made) => withPart(made, "params", { ...made.params, [name]: param }));
}

export function setTaskParam(
  graph: GraphDocument,
  task: string,
  name: string,
  fields: Partial<TaskParam>,
): GraphDocument {
  const param = held("parameter", taskOf(graph, task).params, name);
  return changeTask(graph, task, (made) =>
    withKey(made, "params", withKey(made.params!, name, withFields(param, fields))),
  );
}

/**
 * Another name for a parameter, followed in the task's bindings and conditions. Expressions of Walks and nodes serve
 * several tasks and stay; where nothing else knows the old name, the checks say so.
 */
export function renameTaskParam(graph: GraphDocument, task: string, from: string, to: string): GraphDocument {
  if (from === to) return graph;
  held("parameter", taskOf(graph, task).params, from);
  freeParam(taskOf(graph, task), to);
  return changeTask(graph, task, (made) => {
    const named = withKey(made, "params", withRenamed(made.params!, from, to));
    const change = (step: WalkStep) => {
      const bound = rebound(step, from, to);
      return typeof bound.when === "string" ? withKey(bound, "when", renameParam(bound.when, from, to)) : bound;
    };
    const steps = mapSteps(named.steps, change, renamedTask(from, to), (text) => renameParam(text, from, to));
    return withKey(named, "steps", steps);
  });
}

/** Take a parameter away, with the bindings to it. */
export function removeTaskParam(graph: GraphDocument, task: string, name: string): GraphDocument {
  held("parameter", taskOf(graph, task).params, name);
  return changeTask(graph, task, (made) =>
    unbound(withPart(made, "params", withKey(made.params!, name, undefined)), name),
  );
}

function held<T>(what: string, record: Record<string, T> | undefined, name: string): T {
  const found = own(record, name);
  if (found === undefined) throw new EditRefused(strings.document.theTaskHasNo(what, name));
  return found;
}

/** Inputs and parameters share their names. */
function freeInTask(task: Task, name: string): void {
  const taken = [...Object.keys(task.inputs ?? {}), ...Object.keys(task.params ?? {}), "seed"];
  freeName(strings.document.anInputOrAParameter, name, taken);
}

function freeParam(task: Task, name: string): void {
  freeInTask(task, name);
  if (!canBeNamed(name)) throw new EditRefused(strings.document.cantBeUsedInExpressions(name));
}

function rebound(step: WalkStep, from: string, to: string): WalkStep {
  if (!step.with) return step;
  return withKey(
    step,
    "with",
    mapped(step.with, (value) => (value === `@task.${from}` ? `@task.${to}` : value)),
  );
}

function renamedTask(from: string, to: string): (value: string) => string {
  return (value) => (value === `@task.${from}` ? `@task.${to}` : value);
}

function unbound(task: Task, name: string): Task {
  const change = (step: WalkStep) => {
    const gone = Object.keys(step.with ?? {}).filter((key) => step.with![key] === `@task.${name}`);
    return gone.length
      ? withPart(
          step,
          "with",
          gone.reduce((made, key) => withKey(made, key, undefined), step.with!),
        )
      : step;
  };
  const steps = mapSteps(task.steps, change, (value) => (value === `@task.${name}` ? "" : value));
  return withKey(task, "steps", steps);
}

// ── steps ───────────────────────────────────────────────────────────────────────────────────────

/** Put a step before the one that is at the pointer now; an index past the end of the list puts it last. */
export function insertStep(graph: GraphDocument, task: string, where: Pointer, step: Step): GraphDocument {
  return changeList(graph, task, parentOf(where), (list) => placed(list, indexIn(where), step));
}

export function removeStep(graph: GraphDocument, task: string, where: Pointer): GraphDocument {
  stepAt(taskOf(graph, task), where);
  return changeList(graph, task, parentOf(where), (list) => list.filter((_, index) => index !== indexIn(where)));
}

/** Move a step to before the one that is at `to` now; both pointers are those before the move. */
export function moveStep(graph: GraphDocument, task: string, from: Pointer, to: Pointer): GraphDocument {
  if (`${to}/`.startsWith(`${from}/`) && to !== from) throw new EditRefused(strings.document.aStepCantBeMoved);
  const [here, there] = [indexIn(from), indexIn(to)];
  const step = stepAt(taskOf(graph, task), from);
  if (parentOf(from) === parentOf(to)) {
    if (there === here || there === here + 1) return graph;
    return changeList(graph, task, parentOf(from), (list) => {
      const rest = list.filter((_, index) => index !== here);
      return placed(rest, there > here ? there - 1 : there, step);
    });
  }
  const inserted = insertStep(graph, task, to, step);
  return removeStep(inserted, task, shifted(from, to));
}

/** Change fields of a step; null or undefined takes one away. */
export function setStep(graph: GraphDocument, task: string, where: Pointer, fields: object): GraphDocument {
  const step = stepAt(taskOf(graph, task), where);
  const made = withFields(step as object, fields) as Step;
  if (made === step) return graph;
  return changeList(graph, task, parentOf(where), (list) =>
    list.map((each, index) => (index === indexIn(where) ? made : each)),
  );
}

/** Another value for a case of a choice at the pointer. */
export function renameStepCase(
  graph: GraphDocument,
  task: string,
  where: Pointer,
  from: string,
  to: string,
): GraphDocument {
  const { cases } = stepAt(taskOf(graph, task), where) as ChooseStep;
  if (from === to || !own(cases, from)) return graph;
  if (!to) throw new EditRefused(strings.document.aCaseNeedsAValue);
  if (own(cases, to)) throw new EditRefused(strings.document.thereIsAlreadyACase(to));
  return setStep(graph, task, where, { cases: withRenamed(cases, from, to) });
}

/** A branch of a choice with its steps out of the task; null: `otherwise`. */
export function removeStepCase(
  graph: GraphDocument,
  task: string,
  where: Pointer,
  name: string | null,
): GraphDocument {
  const step = stepAt(taskOf(graph, task), where) as ChooseStep;
  const fields = name === null ? { otherwise: null } : { cases: withKey(step.cases, name, undefined) };
  return setStep(graph, task, where, fields);
}

function stepAt(task: Task, where: Pointer): Step {
  const step = at(task, where);
  if (typeof step !== "object" || step === null || Array.isArray(step))
    throw new EditRefused(strings.document.theTaskNoLongerHas);
  return step as Step;
}

function parentOf(where: Pointer): Pointer {
  return where.slice(0, where.lastIndexOf("/"));
}

function indexIn(where: Pointer): number {
  const last = where.slice(where.lastIndexOf("/") + 1);
  return /^\d+$/.test(last) ? Number(last) : Number.MAX_SAFE_INTEGER;
}

/** Where a step is after another was put in at `inserted`. */
function shifted(where: Pointer, inserted: Pointer): Pointer {
  const parts = split(where);
  const depth = split(inserted).length - 1;
  if (!`${where}/`.startsWith(`${parentOf(inserted)}/`) || !/^\d+$/.test(parts[depth] ?? "")) return where;
  if (Number(parts[depth]) < indexIn(inserted)) return where;
  return join(...parts.slice(0, depth), Number(parts[depth]) + 1, ...parts.slice(depth + 1));
}

/**
 * A list of steps changed: `/steps`, `/steps/LANE`, `/steps/0/first`, `/steps/0/text`, `/steps/0/cases/a`. One that isn't
 * there starts empty.
 */
function changeList(
  graph: GraphDocument,
  task: string,
  where: Pointer,
  change: (list: readonly Step[]) => Step[],
): GraphDocument {
  const parts = split(where);
  if (parts[0] !== "steps") throw new EditRefused(strings.document.thisIsNotAList);
  const put = (value: unknown, depth: number): unknown => {
    if (depth === parts.length) {
      if (value !== undefined && value !== null && !Array.isArray(value))
        throw new EditRefused(strings.document.thisIsNotAList);
      return change((value ?? []) as Step[]);
    }
    const key = parts[depth]!;
    if (Array.isArray(value)) {
      if (!(Number(key) in value)) throw new EditRefused(strings.document.theTaskNoLongerHas);
      return value.map((child, index) => (index === Number(key) ? put(child, depth + 1) : child));
    }
    if (typeof value !== "object" || value === null) throw new EditRefused(strings.document.theTaskNoLongerHas);
    return withKey(value, key, put(own(value as Record<string, unknown>, key), depth + 1));
  };
  return changeTask(graph, task, (made) => put(made, 0) as Task);
}

function placed<T>(list: readonly T[], index: number | undefined, value: T): T[] {
  const at = Math.max(0, Math.min(index ?? list.length, list.length));
  return [...list.slice(0, at), value, ...list.slice(at)];
}
