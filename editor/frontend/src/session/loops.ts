// Where the loops of a Walk are iterated, as the plan of what is open tells. Pure.
import type { LoopShown } from "../messages/answers";
import { onlyMoved } from "./checking";
import type { EditorState } from "../store/types";
import { strings } from "../strings";

/** null: there is no plan of the graph and the placement as they are now, or it has no such loop. */
export function loopShown(
  { documents, planned }: Pick<EditorState, "documents" | "planned">,
  walk: string,
  loop: string,
): LoopShown | null {
  const { plan, of } = planned;
  if (!plan || !of || of.placement !== documents.placement || !onlyMoved(of.graph, documents.graph)) return null;
  return plan.loops.find((each) => each.walk === walk && each.loop === loop) ?? null;
}

/** The text of its mark. */
export function loopMark({ resident, within }: LoopShown): string {
  if (within !== null) return strings.shell.unrolled(within);
  return resident ? strings.shell.onTheDevice : "stepped";
}

/** Why, as a sentence; names stand in backticks. */
export function loopReason({ resident, within, why, usual }: LoopShown): string {
  const reason = why.replace(/^stepped: /, "");
  const often = usual.length > 0 ? strings.shell.iterationsByDefault(listed(usual)) : "";
  if (within !== null) return strings.shell.partOfEachIteration(within, often);
  return resident ? `${reason}.${often}` : strings.shell.callByCallBecause(reason, often);
}

function listed(counts: readonly number[]): string {
  const last = counts.at(-1) ?? 0;
  return counts.length > 1 ? strings.shell.or(counts.slice(0, -1).join(", "), last) : String(last);
}
