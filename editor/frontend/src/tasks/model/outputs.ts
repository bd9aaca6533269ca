// The outputs of a task: which Walks send them, and what flows there. Pure.
import type { Catalogue } from "../../messages/answers";
import { readLink } from "../../document/names";
import { portType } from "../../document/ports";
import type { GraphDocument, Task } from "../../document/types";
import { walkRows, type WalkRow } from "./rows";

export interface Sent {
  name: string;
  /** Port type; null where the source isn't known. */
  type: string | null;
}

/** The outputs that a Walk sends to the client, each name once. */
function sentBy(graph: GraphDocument, catalogue: Catalogue, walk: string): Sent[] {
  const found = new Map<string, Sent>();
  for (const link of graph.walks?.[walk]?.edges ?? []) {
    const { from, to } = readLink(link);
    if (!to.startsWith("@out.")) continue;
    const name = to.slice("@out.".length);
    if (!found.has(name)) found.set(name, { name, type: portType(graph, catalogue, walk, from) });
  }
  return [...found.values()];
}

export interface Offer extends Sent {
  /** Walks that send it, those of the task's steps first. */
  walks: string[];
  /** True if a step of the task sends it. */
  here: boolean;
}

/** Every name that some Walk sends; those of the task's own steps first. */
export function offers(graph: GraphDocument, catalogue: Catalogue, task: Task): Offer[] {
  const own = new Set(walkRows(task).map((row) => row.step.walk));
  const found = new Map<string, Offer>();
  const walks = Object.keys(graph.walks ?? {}).sort((a, b) => Number(own.has(b)) - Number(own.has(a)));
  for (const walk of walks)
    for (const sent of sentBy(graph, catalogue, walk)) {
      const offer = found.get(sent.name) ?? { ...sent, walks: [], here: false };
      found.set(sent.name, { ...offer, walks: [...offer.walks, walk], here: offer.here || own.has(walk) });
    }
  return [...found.values()].sort((a, b) => Number(b.here) - Number(a.here));
}

export interface Final extends Sent {
  /** It is among the task's outputs. */
  wanted: boolean;
}

/**
 * The values that the Walk of this step sends to the client. Those that the task leaves out are shown too: a row of the table has
 * the same height whatever is ticked below it.
 */
export function finals(graph: GraphDocument, catalogue: Catalogue, task: Task, row: WalkRow): Final[] {
  const wanted = Array.isArray(task.outputs) ? task.outputs : [];
  return sentBy(graph, catalogue, row.step.walk).map((sent) => ({ ...sent, wanted: wanted.includes(sent.name) }));
}
