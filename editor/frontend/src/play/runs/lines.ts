// The lines of the history: the browser's own runs, and those that only the service knows. Pure.
import type { RunShown } from "../../messages/answers";
import { isOver } from "../model/results";
import type { Head } from "./history";

export interface Line extends Omit<Head, "state" | "size"> {
  state: RunShown["state"];
  /** The browser keeps it. */
  own: boolean;
  over: boolean;
}

/** Newest first; a run that both know stands once, as the browser kept it. */
export function linesOf(deployment: string, heads: readonly Head[], rows: readonly RunShown[]): Line[] {
  const own = heads.filter((head) => head.deployment === deployment);
  const ids = new Set(own.map((head) => head.id));
  const others = rows.filter((row) => row.deployment === deployment && !ids.has(row.id));
  const lines: Line[] = [
    ...own.map((head) => ({ ...head, state: stateOf(head), own: true, over: isOver(head) })),
    ...others.map(({ id, task, seed, seconds, state, created_at, glimpse }) => ({
      id,
      at: created_at * 1000,
      deployment,
      task,
      state,
      seed,
      seconds,
      thumb: glimpse?.pictured && isOver({ state }) ? thumbnailOf(id) : null,
      said: glimpse?.said ?? "",
      wrote: glimpse?.wrote ?? "",
      own: false,
      over: isOver({ state }),
    })),
  ];
  return lines.sort((a, b) => b.at - a.at);
}

function stateOf(head: Head): Line["state"] {
  switch (head.state) {
    case "done":
    case "cancelled":
    case "failed":
      return head.state;
    default:
      return "running";
  }
}

/** Where the service has a run's picture, small. */
function thumbnailOf(run: string): string {
  return `/api/v1/runs/${encodeURIComponent(run)}/thumbnail`;
}
