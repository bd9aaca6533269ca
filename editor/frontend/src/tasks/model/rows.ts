// A task's state machine as rows of a table, in order. Pure; a draft that isn't well-formed gives the rows it can.
import { BRANCHES, branchOf, PARTS, ROLES, type Branch } from "../../document/edits/parts/steps";
import { join, split } from "../../document/pointer";
import type {
  ApproveStep,
  ChooseStep,
  FirstStep,
  ForStep,
  LoopStep,
  Pointer,
  Step,
  Task,
  WalkStep,
} from "../../document/types";

/** True if a `for` goes through the turns of a conversation, not through parts. */
export function overTurns(step: ForStep): boolean {
  return (step as { for: unknown }).for === "turns";
}

/** The kinds that a `for` can have steps for: modalities of parts, or roles of turns. */
export function kindsOf(step: ForStep): readonly Branch[] {
  return overTurns(step) ? ROLES : PARTS;
}

interface Place {
  /** Relative to the task. */
  pointer: Pointer;
  /** The list it stands in; of a `part`, the `for` around it. */
  list: Pointer;
  index: number;
  /** Position in its lane, in the order that steps run; blocks come before what is in them. */
  order: number;
  /** How many blocks are around it. */
  depth: number;
  /** The partition's list; empty where the task has a single one. */
  lane: string;
  /** Inside `for parts`: the modality of the part. */
  part: string | null;
  /** Inside `for turns`: the role of the turn. */
  turn: string | null;
  /** Inside `first`: the pointer of that block. */
  choice: Pointer | null;
  /** Inside choices by a value: the pointers of the branches around it, outermost first. */
  branches: readonly Pointer[];
  /** The pointers of the loops around it, outermost first. */
  loops: readonly Pointer[];
}

export interface WalkRow extends Place {
  kind: "walk";
  step: WalkStep;
  /** From 1, in the order of its lane. */
  number: number;
}

export interface ForRow extends Place {
  kind: "for";
  step: ForStep;
}

/** `text -> ...` of a `for`: the steps for each part of this modality, or each turn of this role. */
export interface PartRow extends Place {
  kind: "part";
  branch: Branch;
}

export interface FirstRow extends Place {
  kind: "first";
  step: FirstStep;
}

/** Takes one branch by a value. */
export interface ChooseRow extends Place {
  kind: "choose";
  step: ChooseStep;
}

/** `photo -> ...` of a choice: the steps of one case; `name` null: of any other value. */
export interface BranchRow extends Place {
  kind: "branch";
  name: string | null;
}

/** Runs its steps pass after pass. */
export interface LoopRow extends Place {
  kind: "loop";
  step: LoopStep;
}

/** Waits until a person approves or refuses. */
export interface ApproveRow extends Place {
  kind: "approve";
  step: ApproveStep;
}

/** A row that may have results for later steps. */
export type GivingRow = WalkRow | ApproveRow;
/** A row that names results of other steps. */
export type TakingRow = GivingRow | ChooseRow;

/** The end of a list, where a step can be added. */
export interface EndRow extends Place {
  kind: "end";
}

export interface UnknownRow extends Place {
  kind: "unknown";
  step: unknown;
}

export type Row =
  WalkRow | ForRow | PartRow | FirstRow | ChooseRow | BranchRow | LoopRow | ApproveRow | EndRow | UnknownRow;

export interface Lane {
  /** Empty: the task's only list. */
  name: string;
  list: Pointer;
  rows: Row[];
}

export type StepKind = "walk" | "for" | "first" | "choose" | "loop" | "approve" | "unknown";

export function stepKind(step: unknown): StepKind {
  if (typeof step !== "object" || step === null || Array.isArray(step)) return "unknown";
  for (const kind of ["walk", "for", "first", "choose", "loop", "approve"] as const) if (kind in step) return kind;
  return "unknown";
}

/** The task's lists, each with its rows. */
export function lanesOf(task: Task): Lane[] {
  const steps: unknown = task.steps;
  if (Array.isArray(steps)) return [laneOf("", "/steps", steps as Step[])];
  if (typeof steps !== "object" || steps === null) return [laneOf("", "/steps", [])];
  return Object.entries(steps).map(([name, list]) =>
    laneOf(name, join("steps", name), Array.isArray(list) ? (list as Step[]) : []),
  );
}

type Around = Omit<Place, "pointer" | "list" | "index" | "order">;

function laneOf(name: string, list: Pointer, steps: readonly Step[]): Lane {
  let number = 0;
  let order = 0;
  const read = (list: Pointer, steps: readonly Step[], around: Around): Row[] => {
    const rows = steps.flatMap((step, index): Row[] => {
      const place: Place = { ...around, pointer: `${list}/${index}`, list, index, order: order++ };
      const inside = { ...around, depth: around.depth + 1 };
      switch (stepKind(step)) {
        case "walk":
          number += 1;
          return [{ ...place, kind: "walk", step: step as WalkStep, number }];
        case "first": {
          const first = step as FirstStep;
          const options = Array.isArray(first.first) ? first.first : [];
          const choice = place.pointer;
          return [
            { ...place, kind: "first", step: first },
            ...read(`${choice}/first`, options, { ...inside, choice }),
          ];
        }
        case "for": {
          const each = step as ForStep;
          const branches = BRANCHES.filter((kind) => branchOf(each, kind) !== undefined);
          const parts = branches.flatMap((branch, at): Row[] => {
            const pointer = `${place.pointer}/${branch}`;
            const own = { pointer, list: place.pointer, index: at, order: order++ };
            const header: PartRow = { ...inside, ...own, kind: "part", branch };
            const kind = overTurns(each) ? { turn: branch } : { part: branch };
            const deeper = { ...around, depth: around.depth + 2, ...kind };
            return [header, ...read(pointer, branchOf(each, branch) ?? [], deeper)];
          });
          return [{ ...place, kind: "for", step: each }, ...parts];
        }
        case "choose": {
          const choose = step as ChooseStep;
          const header: ChooseRow = { ...place, kind: "choose", step: choose };
          const branches = stepBranches(choose).flatMap(({ name, steps, pointer: below }, at): Row[] => {
            const pointer = place.pointer + below;
            const spot = { pointer, list: place.pointer, index: at, order: order++ };
            const own: BranchRow = { ...inside, ...spot, kind: "branch", name };
            const deeper = { ...around, depth: around.depth + 2, branches: [...around.branches, pointer] };
            return [own, ...read(pointer, steps, deeper)];
          });
          return [header, ...branches];
        }
        case "loop": {
          const loop = step as LoopStep;
          const header: LoopRow = { ...place, kind: "loop", step: loop };
          const deeper = { ...inside, loops: [...around.loops, place.pointer] };
          const list = Array.isArray(loop.loop) ? loop.loop : [];
          return [header, ...read(`${place.pointer}/loop`, list, deeper)];
        }
        case "approve":
          return [{ ...place, kind: "approve", step: step as ApproveStep }];
        default:
          return [{ ...place, kind: "unknown", step }];
      }
    });
    const end: EndRow = { ...around, kind: "end", pointer: `${list}/-`, list, index: steps.length, order: order++ };
    return [...rows, end];
  };
  const outside = { depth: 0, lane: name, part: null, turn: null, choice: null, branches: [], loops: [] };
  return { name, list, rows: read(list, steps, outside) };
}

/** The branches of a choice among steps, `otherwise` last, with their places in it. */
export function stepBranches(step: ChooseStep): { name: string | null; steps: Step[]; pointer: Pointer }[] {
  const cases = typeof step.cases === "object" && step.cases !== null ? Object.entries(step.cases) : [];
  const list = (steps: unknown) => (Array.isArray(steps) ? (steps as Step[]) : []);
  const named = cases.map(([name, steps]) => ({ name, steps: list(steps), pointer: join("cases", name) }));
  if (!Array.isArray(step.otherwise)) return named;
  return [...named, { name: null, steps: step.otherwise, pointer: "/otherwise" }];
}

export function walkRows(task: Task): WalkRow[] {
  return lanesOf(task)
    .flatMap((lane) => lane.rows)
    .filter((row) => row.kind === "walk");
}

/** Walks' steps, and approvals whose answer has a name. */
export function givingRows(task: Task): GivingRow[] {
  return lanesOf(task)
    .flatMap((lane) => lane.rows)
    .filter((row): row is GivingRow => row.kind === "walk" || (row.kind === "approve" && nameOf(row) !== ""));
}

/** The name of a step in later bindings; empty: they can't name it. */
export function nameOf(row: GivingRow): string {
  return row.step.as ?? (row.kind === "walk" ? row.step.walk : "");
}

/** True if `earlier` has run, or may have, when `row` begins; lists run side by side and wait for each other. */
export function runsBefore(earlier: GivingRow, row: TakingRow): boolean {
  if (exclusive(earlier, row)) return false;
  if (earlier.lane !== row.lane) return true;
  if (earlier.choice !== null && earlier.choice === row.choice) return false;
  return earlier.order < row.order;
}

/** True if a row takes the result of another from the pass before: it comes later in a loop around both. */
export function inPassBefore(other: GivingRow, row: TakingRow): boolean {
  return other.order >= row.order && other.loops.some((loop) => row.loops.includes(loop));
}

/** The rows that stand inside a loop, at any depth. */
export function rowsInLoop<R extends Row>(rows: readonly R[], loop: LoopRow): R[] {
  return rows.filter((row) => row.loops.includes(loop.pointer));
}

/** True if both stand in different branches of one choice. */
function exclusive(a: Place, b: Place): boolean {
  const at = a.branches.findIndex((branch, depth) => branch !== b.branches[depth]);
  const [one, other] = [a.branches[at], b.branches[at]];
  if (one === undefined || other === undefined) return false;
  return choiceOf(one) === choiceOf(other);
}

/** The choice that a branch belongs to. */
function choiceOf(branch: Pointer): Pointer {
  const names = split(branch);
  return join(...names.slice(0, names.at(-1) === "otherwise" && names.at(-2) !== "cases" ? -1 : -2));
}

/**
 * True if a list may contain such a step: a choice contains only Walks, the steps of a part no other `for`. Nothing
 * waits for a person inside a `for`.
 */
export function mayHold(list: Pointer, kind: StepKind): boolean {
  if (kind === "walk") return true;
  if (/\/\d+\/first$/.test(list)) return false;
  if (kind === "approve") return !isInsideFor(list) && !isInTurn(list);
  return kind !== "for" || !isInsideFor(list);
}

/** However deep inside. */
function isInsideFor(list: Pointer): boolean {
  return PARTS.some((part) => new RegExp(`/\\d+/${part}(/|$)`).test(list));
}

/** True if a list is inside the steps of a turn. */
export function isInTurn(list: Pointer): boolean {
  return split(list).some(
    (name, at, all) => /^\d+$/.test(all[at - 1] ?? "") && (ROLES as readonly string[]).includes(name),
  );
}

export interface Slot {
  list: Pointer;
  /** Counted before the step is taken away. */
  index: number;
}

/** Where a step goes one place up or down: past its neighbour, or out of the block at the block's end; null: nowhere. */
export function neighbour(rows: readonly Row[], row: Row, direction: -1 | 1): Slot | null {
  if (row.kind === "part" || row.kind === "branch" || row.kind === "end") return null;
  const last = rows.find((other) => other.kind === "end" && other.list === row.list)?.index ?? 0;
  if (direction < 0 && row.index > 0) return { list: row.list, index: row.index - 1 };
  if (direction > 0 && row.index < last - 1) return { list: row.list, index: row.index + 2 };
  const block = rows.findLast(
    ({ kind, pointer }) =>
      (kind === "for" || kind === "first" || kind === "choose" || kind === "loop") &&
      row.list.startsWith(`${pointer}/`),
  );
  return block ? { list: block.list, index: direction < 0 ? block.index : block.index + 1 } : null;
}
