// Asking the service which Walks a request would run, and reading its answer. Pure.
import type { Problem } from "../../messages/answers";
import { join } from "../../document/pointer";
import type { PlacementDocument } from "../../document/placement/schema.generated";
import type { GraphDocument, Literal, Pointer, Task, TaskInput, TaskParam } from "../../document/types";
import { PARTS, ROLES } from "../../document/edits/parts/steps";
import { lanesOf, type Row } from "./rows";
import { strings } from "../../strings";

export interface SimulatedUse {
  use: string;
  node: string;
  /** null: it depends on the iteration, or on a value of the run. */
  taken: boolean | null;
  why: string;
  /** How often it is called at most; null: that can't be worked out. */
  iterations: number | null;
}

/** Values that go from one host to another. */
export interface HostCostShown {
  /** Of the edge in the graph; empty for a state. */
  pointer: Pointer;
  /** `use.port -> use.port`, or the state's name. */
  what: string;
  source: string;
  target: string;
  /** At most; null: that can't be worked out. */
  times: number | null;
  bytes: number | null;
  /** Of all of them, at least; null: the link isn't measured. */
  seconds: number | null;
}

export interface SimulatedStep {
  /** Pointer of the step, relative to the task. */
  pointer: Pointer;
  walk: string;
  as: string | null;
  part: { modality: string; index: number } | null;
  /** The turn of a conversation that it is taken for. */
  turn: { role: string; index: number } | null;
  /** null: a value of the run decides. */
  taken: boolean | null;
  why: string;
  /** Loop -> how often at most; null: that can't be worked out. */
  loops: Record<string, number | null>;
  uses: SimulatedUse[];
  /** Empty where all is on one host. */
  host_costs?: HostCostShown[];
}

export interface Simulated {
  ok: boolean;
  problems: Problem[];
  /** As the run would have them. */
  params: Record<string, Literal>;
  lanes: { lane: string; steps: SimulatedStep[] }[];
  /** Seconds of all host costs that are known; null: none is. */
  between_hosts?: number | null;
}

/** The request to simulate. */
export interface Choice {
  /** Only those that were set; the rest have the task's defaults. */
  params: Record<string, Literal>;
  /** Names of inputs in the order that they come; one with `many` can come again. */
  given: string[];
}

export interface SimulateRequest {
  graph: GraphDocument;
  task: string;
  params: Record<string, Literal>;
  inputs: Record<string, number>;
  parts: string[];
  turns: SimulatedTurn[];
  /** Only one that names hosts. */
  placement?: PlacementDocument;
  /** To assume. */
  hardware?: string;
}

/** A turn of the simulated conversation: its role, and the modalities of its parts. */
export interface SimulatedTurn {
  role: string;
  parts: string[];
}

/** Where the request would run. */
export type Place = Pick<SimulateRequest, "placement" | "hardware">;

/** Empty where the placement names no host: nothing goes between hosts then. `hardware`: empty for what there is. */
export function placeOf(placement: PlacementDocument | null, hardware: string): Place {
  if (placement === null || ![...placement.groups, ...placement.ranks].some((entry) => entry.host)) return {};
  return hardware === "" ? { placement } : { placement, hardware };
}

/** Every input once. */
export function firstChoice(task: Task): Choice {
  return { params: {}, given: Object.keys(task.inputs ?? {}) };
}

/** A choice without what the task no longer has. */
export function fitting(choice: Choice, task: Task): Choice {
  const params = Object.entries(choice.params).filter(([name]) => name === "seed" || name in (task.params ?? {}));
  return { params: Object.fromEntries(params), given: choice.given.filter((name) => name in (task.inputs ?? {})) };
}

/** Inputs whose modality a `for` walks go as parts in their order, the others by name. */
export function requestOf(graph: GraphDocument, name: string, task: Task, choice: Choice): SimulateRequest {
  const { params, given } = fitting(choice, task);
  const walked = walkedModalities(task);
  const inputs: Record<string, number> = {};
  const parts: string[] = [];
  for (const key of given) {
    const modality = task.inputs?.[key]?.modality ?? "";
    if (walked.has(modality)) parts.push(modality);
    else inputs[key] = (inputs[key] ?? 0) + 1;
  }
  const talks = given.some((key) => task.inputs?.[key]?.modality === "messages");
  return { graph, task: name, params, inputs, parts, turns: talks ? exampleTurns(task) : [] };
}

function walkedModalities(task: Task): Set<string> {
  const rows = lanesOf(task).flatMap((lane) => lane.rows);
  return new Set(
    rows.flatMap((row) => (row.kind === "part" && row.turn === null && isPart(row.branch) ? [row.branch] : [])),
  );
}

const isPart = (branch: string) => (PARTS as readonly string[]).includes(branch);

/** A conversation that takes every branch: a turn of each role that has steps, and a last question. */
export function exampleTurns(task: Task): SimulatedTurn[] {
  const rows = lanesOf(task).flatMap((lane) => lane.rows);
  const roles = ROLES.filter((role) => rows.some((row) => row.kind === "part" && row.branch === role));
  const turns = (roles.length > 0 ? roles : ["user"]).map((role) => ({ role, parts: partsOf(rows, role) }));
  const asked = turns.find(({ role }) => role === "user");
  return asked && turns.at(-1) !== asked ? [...turns, asked] : turns;
}

function partsOf(rows: readonly Row[], role: string): string[] {
  const found = rows.flatMap((row) =>
    row.kind === "part" && row.turn === role && isPart(row.branch) ? [row.branch] : [],
  );
  return found.length > 0 ? [...new Set(found)] : ["text"];
}

/** Why another value of this input can't be added; null: it can. */
export function whyNotMore(name: string, input: TaskInput, given: readonly string[]): string | null {
  return !input.many && given.includes(name) ? strings.tasks.canBeGivenOnce(name) : null;
}

/** Inputs that a request must have and this one lacks. */
export function missing(task: Task, choice: Choice): string[] {
  const needed = Object.entries(task.inputs ?? {}).filter(
    ([, input]) => !input.optional && (input.default ?? null) === null,
  );
  return needed.map(([name]) => name).filter((name) => !choice.given.includes(name));
}

/** The default of a parameter; the smallest allowed value if the client must set it. */
export function startValue(param: TaskParam): Literal {
  if (param.default !== undefined && param.default !== null) return param.default;
  const choice = param.choices?.[0];
  if (choice !== undefined) return choice;
  return { integer: param.min ?? 0, number: param.min ?? 0, boolean: false, string: "" }[param.type] ?? "";
}

/** `2 to 200`, `at least 1`; empty: any. */
export function bounds(param: TaskParam): string {
  const { min, max } = param;
  if (typeof min === "number" && typeof max === "number") return strings.tasks.to(min, max);
  if (typeof min === "number") return strings.tasks.atLeast(min);
  return typeof max === "number" ? strings.tasks.atMost(max) : "";
}

/** Why this value would be refused; null: it is fine. */
export function whyNotValue(value: Literal, param: TaskParam): string | null {
  if (param.type === "integer" || param.type === "number") {
    if (typeof value !== "number" || !Number.isFinite(value)) return strings.tasks.aNumberIsNeeded;
    if (param.type === "integer" && !Number.isInteger(value)) return strings.tasks.aWholeNumberIsNeeded;
    if (typeof param.min === "number" && value < param.min) return strings.tasks.atLeast(param.min);
    if (typeof param.max === "number" && value > param.max) return strings.tasks.atMost(param.max);
  }
  if (param.choices?.length && !param.choices.includes(value)) return strings.tasks.notOneOfTheChoices;
  return null;
}

// ── the answer ────────────────────────────────────────────────────────────────────────────────

export interface Lit {
  ran: number;
  skipped: number;
  /** How often a value of the run decides. */
  open: number;
  /** Reason of the first step that was skipped. */
  why: string;
}

/** Step of the table -> how often it ran and was skipped; a step inside `for` can do both. */
export function litSteps(simulated: Simulated, task: string): Map<Pointer, Lit> {
  const found = new Map<Pointer, Lit>();
  for (const step of simulated.lanes.flatMap((lane) => lane.steps)) {
    const pointer = relative(step.pointer, task);
    const lit = found.get(pointer) ?? { ran: 0, skipped: 0, open: 0, why: "" };
    found.set(pointer, {
      ran: lit.ran + Number(step.taken === true),
      skipped: lit.skipped + Number(step.taken === false),
      open: lit.open + Number(step.taken === null),
      why: lit.why || (step.taken ? "" : step.why),
    });
  }
  return found;
}

/** The reason without what its reader sees already: `think is false`, or of a longer condition of the row its values. */
export function reason(why: string, when?: string | null): string {
  const [, condition, values] = /^(.*) is false(?:: (.*))?$/.exec(why) ?? [];
  if (condition === undefined || values === undefined) return why;
  if (/^\w+$/.test(condition)) return strings.tasks.isFalse(condition);
  return when && condition.replace(/\s/g, "") === when.replace(/\s/g, "") ? values : why;
}

export function relative(pointer: Pointer, task: string): Pointer {
  const base = join("tasks", task);
  return pointer.startsWith(`${base}/`) ? pointer.slice(base.length) : pointer;
}

export function totals(simulated: Simulated): { ran: number; skipped: number; open: number } {
  const steps = simulated.lanes.flatMap((lane) => lane.steps);
  const count = (taken: boolean | null) => steps.filter((step) => step.taken === taken).length;
  return { ran: count(true), skipped: count(false), open: count(null) };
}
