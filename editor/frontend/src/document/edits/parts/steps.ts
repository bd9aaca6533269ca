// A task's steps, whatever lists and branches they stand in.
import type { ApproveStep, ChooseStep, ForStep, LoopStep, Step, Task, WalkStep } from "../../types";
import { mapped, mappedList, withKey } from "./records";

export type Steps = Task["steps"];
export const PARTS = ["text", "image", "audio", "video", "state", "actions"] as const;
export const ROLES = ["system", "user", "assistant", "tool"] as const;
/** The keys of a `for` that have steps: modalities of parts, roles of turns. */
export const BRANCHES = [...PARTS, ...ROLES] as const;
export type Branch = (typeof BRANCHES)[number];

/** The steps of a `for` for one kind; undefined: it has none. */
export function branchOf(step: ForStep, kind: Branch): Step[] | undefined {
  const list = (step as Partial<Record<Branch, unknown>>)[kind];
  return Array.isArray(list) ? (list as Step[]) : undefined;
}

interface Change {
  step: (step: WalkStep) => WalkStep;
  /**
   * The values that a choice goes by, what ends a loop and what it starts with, and what a person is shown, written as bindings;
   * empty: nothing any more.
   */
  value?: (binding: string) => string;
  /** The number of passes of a loop. */
  expression?: (text: string) => string;
  approval?: (step: ApproveStep) => ApproveStep;
}

function isWalkStep(step: Step): step is WalkStep {
  return typeof step === "object" && step !== null && "walk" in step;
}

/** Every Walk's step changed, and what choices, loops and approvals name; the same steps when none is. */
export function mapSteps(
  steps: Steps,
  step: Change["step"],
  value?: Change["value"],
  expression?: Change["expression"],
): Steps {
  const change: Change = { step, ...(value && { value }), ...(expression && { expression }) };
  return eachList(steps, (list) => mappedList(list, (each) => mapStep(each, change)));
}

function mapStep(step: Step, change: Change): Step {
  if (typeof step !== "object" || step === null) return step;
  if (isWalkStep(step)) return change.step(step);
  const inner = (list: readonly Step[]) => mappedList(list, (each) => mapStep(each, change));
  if ("first" in step)
    return Array.isArray(step.first) ? withKey(step, "first", mappedList(step.first, change.step)) : step;
  if ("loop" in step) return mapLoop(step, inner, change);
  if ("for" in step) return inParts(step, inner);
  if ("approve" in step) return mapApproval(step, change);
  if (!("choose" in step)) return step;
  const made = inCases(step, inner);
  const bound = change.value && typeof step.choose === "string" ? change.value(step.choose) : step.choose;
  return withKey(made, "choose", bound);
}

function mapApproval(step: ApproveStep, { value, approval }: Change): ApproveStep {
  const name = (shown: string) => (value && typeof shown === "string" ? value(shown) : shown);
  const made = Array.isArray(step.approve) ? withKey(step, "approve", mappedList(step.approve, name)) : step;
  return approval ? approval(made) : made;
}

/** Without the results that are gone among those that approvals show; one of them stays, since nothing can't be shown. */
export function withoutShown(steps: Steps, gone: (result: string) => boolean): Steps {
  const approval = (step: ApproveStep) => {
    if (!Array.isArray(step.approve) || !step.approve.some(gone)) return step;
    const left = step.approve.filter((result) => !gone(result));
    return withKey(step, "approve", left.length > 0 ? left : step.approve.slice(0, 1));
  };
  return eachList(steps, (list) => mappedList(list, (each) => mapStep(each, { step: (own) => own, approval })));
}

function mapLoop(step: LoopStep, inner: (list: readonly Step[]) => Step[], change: Change): LoopStep {
  let made = Array.isArray(step.loop) ? withKey(step, "loop", inner(step.loop)) : step;
  const { expression, value } = change;
  if (expression && typeof step.times === "string") made = withKey(made, "times", expression(step.times));
  if (!value) return made;
  if (typeof step.until === "string") made = withKey(made, "until", value(step.until) || undefined);
  if (typeof step.start !== "object" || step.start === null) return made;
  const entries = Object.entries(step.start).map(([result, binding]) => [
    value(result),
    typeof binding === "string" ? value(binding) : binding,
  ]);
  const kept = entries.filter(([result, binding]) => result !== "" && binding !== "");
  const same = Object.entries(step.start).every(
    ([result, binding], index) => kept[index]?.[0] === result && kept[index][1] === binding,
  );
  return same ? made : withKey(made, "start", kept.length ? Object.fromEntries(kept) : undefined);
}

/** Without the Walk's steps that `gone` names; a `first` without an option and a loop without a step go too. */
export function withoutSteps(steps: Steps, gone: (step: WalkStep) => boolean): Steps {
  const left = (list: readonly Step[]): Step[] => {
    const made = list.flatMap((step): Step[] => {
      if (typeof step !== "object" || step === null) return [step];
      if (isWalkStep(step)) return gone(step) ? [] : [step];
      if ("choose" in step) return [inCases(step, left)];
      if ("loop" in step) {
        const inside = Array.isArray(step.loop) ? left(step.loop) : step.loop;
        return inside?.length === 0 && step.loop.length > 0 ? [] : [withKey(step, "loop", inside)];
      }
      if (!("first" in step)) return ["for" in step ? inParts(step, left) : step];
      const options = Array.isArray(step.first) ? step.first.filter((option) => !gone(option)) : [];
      if (options.length === step.first?.length) return [step];
      return options.length ? [{ ...step, first: options }] : [];
    });
    return made.length === list.length && made.every((step, index) => step === list[index]) ? (list as Step[]) : made;
  };
  return eachList(steps, left);
}

function eachList(steps: Steps, change: (list: readonly Step[]) => Step[]): Steps {
  if (Array.isArray(steps)) return change(steps);
  if (typeof steps !== "object" || steps === null) return steps;
  return mapped(steps, (list) => (Array.isArray(list) ? change(list) : list));
}

function inParts(step: ForStep, change: (list: readonly Step[]) => Step[]): ForStep {
  return BRANCHES.reduce<ForStep>((made, kind) => {
    const list = branchOf(made, kind);
    return list ? withKey(made, kind as keyof ForStep, change(list) as never) : made;
  }, step);
}

function inCases(step: ChooseStep, change: (list: readonly Step[]) => Step[]): ChooseStep {
  const isRecord = typeof step.cases === "object" && step.cases !== null;
  const cases = isRecord ? mapped(step.cases, (list) => (Array.isArray(list) ? change(list) : list)) : step.cases;
  const made = cases === step.cases ? step : { ...step, cases };
  return Array.isArray(step.otherwise) ? withKey(made, "otherwise", change(step.otherwise)) : made;
}

/** The names of the answers that approvals give to later steps. */
export function answersOf(steps: Steps): string[] {
  const found: string[] = [];
  const approval = (step: ApproveStep) => {
    if (typeof step.as === "string") found.push(step.as);
    return step;
  };
  eachList(steps, (list) => mappedList(list, (each) => mapStep(each, { step: (own) => own, approval })));
  return found;
}

/** Every Walk's step of a task, list by list. */
export function stepsOf(steps: Steps): WalkStep[] {
  const found: WalkStep[] = [];
  mapSteps(steps, (step) => {
    found.push(step);
    return step;
  });
  return found;
}
