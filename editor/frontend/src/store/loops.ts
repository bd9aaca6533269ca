// Where the loops of a Walk are iterated, as the plan of what is open tells. Pure.
import type { LoopShown } from "../api/types";
import { onlyMoved } from "./checking";
import type { EditorState } from "./types";

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

/** What its mark says. */
export function loopMark({ resident }: LoopShown): string {
  return resident ? "on the device" : "stepped";
}

/** Why, as a sentence; names stand in backticks. */
export function loopReason({ resident, why }: LoopShown): string {
  const reason = why.replace(/^stepped: /, "");
  return resident ? `${reason}.` : `Call by call, because ${reason}.`;
}
