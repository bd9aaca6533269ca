// A task's lists of steps, one a partition where the graph has streams. Pure.
import { EditRefused } from "../../document/edits/parts/records";
import { freshName, isName } from "../../document/names";
import type { Task } from "../../document/types";
import { strings } from "../../strings";

type Steps = Task["steps"];

/** One more, empty; the single list of a task becomes the first of two. */
export function add(steps: Steps): Steps {
  if (Array.isArray(steps)) return { main: steps, [freshName("lane", ["main"])]: [] };
  return { ...steps, [freshName("lane", Object.keys(steps))]: [] };
}

export function rename(steps: Steps, from: string, to: string): Steps {
  if (Array.isArray(steps) || from === to) return steps;
  if (!isName(to)) throw new EditRefused(strings.tasks.cantBeANameStart(to));
  if (to in steps) throw new EditRefused(strings.tasks.thereIsAlreadyALane(to));
  return Object.fromEntries(Object.entries(steps).map(([name, list]) => [name === from ? to : name, list]));
}

/** Without it and its steps; the last one left becomes the task's single list. */
export function remove(steps: Steps, lane: string): Steps {
  if (Array.isArray(steps)) return steps;
  const left = Object.entries(steps).filter(([name]) => name !== lane);
  return left.length === 1 ? (left[0]?.[1] ?? []) : Object.fromEntries(left);
}
