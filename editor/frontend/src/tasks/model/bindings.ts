// The possible bindings of a Walk's input at a step, and their meaning. Pure.
import type { Catalogue } from "../../messages/answers";
import { readResult } from "../../document/names";
import { portType } from "../../document/ports";
import type { GraphDocument, Literal, Pointer, Task, TaskParam } from "../../document/types";
import { modalityOf } from "../../ui/modality";
import {
  givingRows,
  inPassBefore,
  lanesOf,
  nameOf,
  rowsInLoop,
  runsBefore,
  type ApproveRow,
  type ChooseRow,
  type EndRow,
  type GivingRow,
  type LoopRow,
  type Row,
  type Slot,
  type TakingRow,
  type WalkRow,
} from "./rows";
import { strings } from "../../strings";

export interface Option {
  value: string;
  /** Its modality; for a parameter, its type. */
  of: string;
  group: "The request" | "This part" | "This turn" | "This pass" | "Earlier steps" | "The pass before";
  /** Why it can't be taken; null: it can. */
  refused: string | null;
}

/** Type of a parameter -> the inputs that it may be bound to. */
const PARAM_FITS: Record<TaskParam["type"], readonly string[]> = {
  string: ["text"],
  boolean: ["flag", "scalar"],
  integer: ["scalar"],
  number: ["scalar"],
};

/** The value that steps for a turn can bind of it, and its type. */
const TURN_VALUES: readonly [value: string, of: TaskParam["type"]][] = [
  ["@turn.role", "string"],
  ["@turn.index", "integer"],
  ["@turn.last", "boolean"],
  ["@turn.calls", "string"],
  ["@turn.call_id", "string"],
];

/** The sources at this step for an input of this port type; unsuitable ones have the reason. */
export function options(
  graph: GraphDocument,
  catalogue: Catalogue,
  task: Task,
  row: WalkRow,
  type: string,
): Option[] {
  const wanted = modalityOf(type);
  const misfit = (of: string) => (of === wanted ? null : strings.tasks.itIs(of));
  const found: Option[] = [];
  if (row.part !== null) found.push({ value: "@part", of: row.part, group: "This part", refused: misfit(row.part) });
  for (const [value, of] of row.turn === null ? [] : TURN_VALUES)
    if (PARAM_FITS[of].includes(wanted)) found.push({ value, of, group: "This turn", refused: null });
  if (row.loops.length > 0 && wanted === "scalar")
    found.push({ value: "@loop.index", of: "integer", group: "This pass", refused: null });
  for (const [name, input] of Object.entries(task.inputs ?? {})) {
    // Many values are a list for an input that takes one; otherwise a `for` goes through them.
    const list = input.many && wanted.startsWith("list of ");
    const refused =
      misfit(list ? `list of ${input.modality}` : input.modality) ??
      (input.many && !list ? strings.tasks.manyPartsUseForEach : null);
    found.push({ value: `@task.${name}`, of: input.modality, group: "The request", refused });
  }
  for (const [name, param] of Object.entries(withSeed(task))) {
    if (!PARAM_FITS[param.type]?.includes(wanted)) continue;
    found.push({ value: `@task.${name}`, of: param.type, group: "The request", refused: null });
  }
  return [...found, ...results(graph, catalogue, task, row, wanted)];
}

/** The value that an approval with a name gives to later steps: its name, and its type. */
const ANSWER: readonly [name: string, type: string][] = [
  ["approved", "flag"],
  ["note", "text"],
];

interface Given {
  /** `step.result`. */
  value: string;
  /** Port type; null where it isn't known. */
  type: string | null;
}

/** The values that a step gives to later ones. */
function givenBy(graph: GraphDocument, catalogue: Catalogue, row: GivingRow): Given[] {
  const name = nameOf(row);
  if (row.kind === "approve") return ANSWER.map(([key, type]) => ({ value: `${name}.${key}`, type }));
  const { walk } = row.step;
  return Object.entries(graph.walks?.[walk]?.results ?? {}).map(([result, source]) => {
    return { value: `${name}.${result}`, type: portType(graph, catalogue, walk, readResult(source).from, "source") };
  });
}

type Reached = Given & { group: "Earlier steps" | "The pass before" };

/** The results that a row can name, each once. */
function reached(graph: GraphDocument, catalogue: Catalogue, task: Task, row: TakingRow): Reached[] {
  const found = new Map<string, Reached>();
  const rows = givingRows(task);
  // A name that has run in this pass means that run.
  const earlier = rows.filter((other) => other.pointer !== row.pointer && runsBefore(other, row));
  for (const other of [...rows.filter((each) => inPassBefore(each, row)), ...earlier]) {
    const group = earlier.includes(other) ? "Earlier steps" : "The pass before";
    for (const given of givenBy(graph, catalogue, other)) found.set(given.value, { ...given, group });
  }
  return [...found.values()];
}

function results(graph: GraphDocument, catalogue: Catalogue, task: Task, row: WalkRow, wanted: string): Option[] {
  return reached(graph, catalogue, task, row).map(({ value, type, group }) => {
    const of = modalityOf(type ?? wanted);
    return { value, of, group, refused: of === wanted ? null : strings.tasks.itIs(of) };
  });
}

/** The values that a choice could go by: parameters, results of earlier steps; a flag, whole number or text. */
export function choiceValues(graph: GraphDocument, catalogue: Catalogue, task: Task, row: ChooseRow): Option[] {
  const params = Object.entries(task.params ?? {}).flatMap(([name, { type }]): Option[] =>
    type === "number" ? [] : [{ value: `@task.${name}`, of: type, group: "The request", refused: null }],
  );
  const fits = (type: string | null) => type === null || /^(flag|text)\b|^scalar(: int)?(\[\])?$/.test(type.trim());
  const found = reached(graph, catalogue, task, row).flatMap(({ value, type, group }): Option[] =>
    group === "Earlier steps" && fits(type) ? [{ value, of: modalityOf(type ?? ""), group, refused: null }] : [],
  );
  return [...params, ...found];
}

/** The results that an approval could show besides those that it shows, by where they come from. */
export function showable(
  graph: GraphDocument,
  catalogue: Catalogue,
  task: Task,
  row: ApproveRow,
): Record<"earlier" | "before", string[]> {
  const free = reached(graph, catalogue, task, row).filter(({ value }) => !shownBy(row).includes(value));
  const of = (wanted: Reached["group"]) => free.filter(({ group }) => group === wanted).map(({ value }) => value);
  return { earlier: of("Earlier steps"), before: of("The pass before") };
}

/** The values that an approval shows, of a draft too that isn't well-formed. */
export function shownBy(row: ApproveRow): string[] {
  const { approve } = row.step;
  return Array.isArray(approve) ? approve.map(String) : [];
}

/** The value that a new approval shows first: a result of the last step before it that always runs, else of one that may. */
export function firstShown(graph: GraphDocument, catalogue: Catalogue, task: Task, slot: Slot): string[] {
  const inList = rowsOf(task).filter((row) => row.list === slot.list && row.kind !== "part" && row.kind !== "branch");
  const next =
    inList.find((row) => row.index === slot.index) ?? inList.find((row): row is EndRow => row.kind === "end");
  if (!next) return [];
  const row: ApproveRow = { ...next, kind: "approve", step: { approve: [] } };
  const givers = givingRows(task).filter(
    (other): other is WalkRow =>
      other.kind === "walk" && runsBefore(other, row) && givenBy(graph, catalogue, other).length > 0,
  );
  const always = ({ step, choice, part, turn, branches }: WalkRow) =>
    !step.when &&
    (choice ?? part ?? turn) === null &&
    branches.every((branch, depth) => branch === row.branches[depth]);
  const last = givers.findLast(always) ?? givers.at(-1);
  return last ? [givenBy(graph, catalogue, last)[0]!.value] : [];
}

/** The flags that could end a loop: those that its steps give. */
export function endings(graph: GraphDocument, catalogue: Catalogue, task: Task, row: LoopRow): string[] {
  const found = inLoop(graph, catalogue, task, row).filter(
    ({ type }) => type === null || modalityOf(type) === "flag",
  );
  return [...new Set(found.map(({ value }) => value))];
}

/** The values that a loop could start with: results that a step takes from the pass before, or that are shown of it. */
export function startable(graph: GraphDocument, catalogue: Catalogue, task: Task, row: LoopRow): string[] {
  const inside = rowsInLoop(rowsOf(task), row);
  const taken = new Set(inside.flatMap((each) => takenBy(graph, catalogue, task, each)));
  const known = [...new Set(inLoop(graph, catalogue, task, row).map(({ value }) => value))];
  return known.filter((value) => taken.has(value) && !(value in (row.step.start ?? {})));
}

function takenBy(graph: GraphDocument, catalogue: Catalogue, task: Task, row: Row): string[] {
  if (row.kind === "walk") return Object.values(row.step.with ?? {}).map(String);
  if (row.kind !== "approve") return [];
  const before = reached(graph, catalogue, task, row).filter(({ group }) => group === "The pass before");
  return before.map(({ value }) => value).filter((value) => shownBy(row).includes(value));
}

/** The results of the steps in a loop. */
function inLoop(graph: GraphDocument, catalogue: Catalogue, task: Task, row: LoopRow): Given[] {
  return rowsInLoop(givingRows(task), row).flatMap((each) => givenBy(graph, catalogue, each));
}

function rowsOf(task: Task): Row[] {
  return lanesOf(task).flatMap((lane): Row[] => lane.rows);
}

/** The cases that a value can have, where that is known: of a flag two, of a parameter with choices those. */
export function choiceCases(graph: GraphDocument, catalogue: Catalogue, task: Task, value: string): string[] {
  const param = value.startsWith("@task.") ? task.params?.[value.slice("@task.".length)] : undefined;
  if (param) return param.type === "boolean" ? ["true", "false"] : (param.choices ?? []).map(String);
  const [owner = "", result = ""] = value.split(/\.(.*)/s, 2);
  const row = givingRows(task).find((each) => nameOf(each) === owner);
  const type = row && givenBy(graph, catalogue, row).find((given) => given.value === `${owner}.${result}`)?.type;
  return type && modalityOf(type) === "flag" ? ["true", "false"] : [];
}

/** For a new step of this Walk in a list: the part where it fits, else the one input of the request that does. */
export function suggested(
  graph: GraphDocument,
  catalogue: Catalogue,
  task: Task,
  list: Pointer,
  walk: string,
): Record<string, Literal> {
  const rows = lanesOf(task).flatMap((lane) => lane.rows);
  const end = rows.find((row) => row.kind === "end" && row.list === list);
  if (!end) return {};
  const row: WalkRow = { ...end, kind: "walk", step: { walk }, number: 0 };
  const found: Record<string, Literal> = {};
  for (const [name, type] of Object.entries(graph.walks?.[walk]?.inputs ?? {})) {
    const fitting = options(graph, catalogue, task, row, String(type)).filter((option) => option.refused === null);
    const inputs = Object.keys(task.inputs ?? {}).map((input) => `@task.${input}`);
    const choice =
      fitting.find((option) => option.value === "@part") ??
      fitting.find((option) => inputs.includes(option.value)) ??
      fitting.findLast((option) => option.group === "Earlier steps");
    if (choice) found[name] = choice.value;
  }
  return found;
}

/**
 * For an input that is now bound to a result of the pass before: the innermost loop, with what the input was bound to
 * as the start of that result. Nothing where the result has a start already, or the input had nothing to begin with.
 */
export function startFor(
  graph: GraphDocument,
  catalogue: Catalogue,
  task: Task,
  pointer: Pointer,
  input: string,
  value: Literal | undefined,
): { pointer: Pointer; start: Record<string, Literal> } | null {
  const rows = rowsOf(task);
  const row = rows.find((each): each is WalkRow => each.kind === "walk" && each.pointer === pointer);
  const before = row?.step.with?.[input];
  const type = row && graph.walks?.[row.step.walk]?.inputs?.[input];
  if (!row || before === undefined || type === undefined) return null;
  const found = options(graph, catalogue, task, row, String(type));
  const groupOf = (one: Literal | undefined) => found.find((option) => option.value === one)?.group;
  if (groupOf(value) !== "The pass before" || (isReference(before) && groupOf(before) !== "The request")) return null;
  const loop = rows.findLast(
    (each): each is LoopRow =>
      each.kind === "loop" &&
      row.loops.includes(each.pointer) &&
      inLoop(graph, catalogue, task, each).some((given) => given.value === value),
  );
  if (!loop || String(value) in (loop.step.start ?? {})) return null;
  return { pointer: loop.pointer, start: { ...loop.step.start, [String(value)]: before } };
}

/**
 * The bindings, choices and approvals that mean this step's results, as they are once it is called `to`: fields of
 * those steps.
 */
export function rebound(task: Task, row: GivingRow, to: string): { pointer: Pointer; fields: object }[] {
  const rows = givingRows(task);
  const from = nameOf(row);
  if (from === "" || to === "") return [];
  const means = (other: TakingRow) => {
    const earlier = rows.filter((each) => each.pointer !== other.pointer && runsBefore(each, other));
    const named = (each: GivingRow) => nameOf(each) === from;
    const meant = earlier.findLast(named) ?? rows.findLast((each) => inPassBefore(each, other) && named(each));
    return meant?.pointer === row.pointer;
  };
  return rowsOf(task).flatMap((other): { pointer: Pointer; fields: object }[] => {
    if (other.kind === "loop") return row.loops.includes(other.pointer) ? reboundLoop(other, from, to) : [];
    if (other.kind !== "choose" && other.kind !== "walk" && other.kind !== "approve") return [];
    const fields = reboundFields(other, from, to);
    return fields !== null && means(other) ? [{ pointer: other.pointer, fields }] : [];
  });
}

/** The fields that name results of `from`, with `to` instead; null: none does. */
function reboundFields(row: TakingRow, from: string, to: string): object | null {
  const name = (value: Literal) => (isResultOf(value, from) ? `${to}${String(value).slice(from.length)}` : value);
  if (row.kind === "choose") return isResultOf(row.step.choose, from) ? { choose: name(row.step.choose) } : null;
  if (row.kind === "approve") {
    const shown = shownBy(row);
    return shown.some((value) => isResultOf(value, from)) ? { approve: shown.map(name) } : null;
  }
  const bindings = Object.entries(row.step.with ?? {});
  if (!bindings.some(([, value]) => isResultOf(value, from))) return null;
  return { with: Object.fromEntries(bindings.map(([input, value]) => [input, name(value)])) };
}

/** A loop around a step that is called `to` now. */
function reboundLoop(row: LoopRow, from: string, to: string): { pointer: Pointer; fields: object }[] {
  const name = (value: string) => (isResultOf(value, from) ? `${to}${value.slice(from.length)}` : value);
  const { until, start } = row.step;
  const fields = {
    ...(typeof until === "string" && isResultOf(until, from) && { until: name(until) }),
    ...(Object.keys(start ?? {}).some((value) => isResultOf(value, from)) && {
      start: Object.fromEntries(Object.entries(start ?? {}).map(([value, binding]) => [name(value), binding])),
    }),
  };
  return Object.keys(fields).length > 0 ? [{ pointer: row.pointer, fields }] : [];
}

function isResultOf(value: Literal, step: string): boolean {
  return isReference(value) && String(value).startsWith(`${step}.`);
}

/** `seed` is always there. */
export function withSeed(task: Task): Record<string, TaskParam> {
  return { seed: { type: "integer" }, ...task.params };
}

export function isReference(value: Literal | undefined): boolean {
  return typeof value === "string" && (value.startsWith("@") || /^[A-Za-z][\w-]*\.[A-Za-z][\w-]*$/.test(value));
}

/** A literal as typed: for a text the words, otherwise a number or true/false where it reads as one. */
export function readLiteral(text: string, type: string): Literal {
  if (modalityOf(type) === "text") return text;
  const trimmed = text.trim();
  if (trimmed === "true" || trimmed === "false") return trimmed === "true";
  const number = Number(trimmed);
  return trimmed !== "" && Number.isFinite(number) ? number : text;
}
