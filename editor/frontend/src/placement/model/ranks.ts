// Ranks as the canvas shows them: where a node is, and a colour per rank (always with the rank's number).
import type { EditorState } from "../../store/types";
import { isReadable, ranksOfNode, walksOfNodes } from "../../document/placement/resolve";
import type { PlacementDocument } from "../../document/placement/schema.generated";

const RANK_COLORS = 8;

/** Colour of a rank, light or dark with the theme. Colours repeat after eight, so the number is always shown with it. */
export function rankColor(rank: number): string {
  return `var(--rank-${((rank % RANK_COLORS) + RANK_COLORS) % RANK_COLORS})`;
}

/** The placement that counts: the author's, else the one that the service chose for the plan; null: none is known. */
export function placementInForce(state: Pick<EditorState, "documents" | "planned">): PlacementDocument | null {
  const own = state.documents.placement;
  if (own) return isReadable(own) ? own : null;
  const planned = state.planned.plan?.placement;
  return isReadable(planned) ? planned : null;
}

/**
 * Ranks of a node in a Walk; without a Walk, all that it is on in any of the Walks that use it. Empty: not placed.
 * Make it once per state that it depends on (`documents`, `planned`).
 */
export function ranksOf(
  state: Pick<EditorState, "documents" | "planned">,
): (node: string, walk: string | null) => number[] {
  const placement = placementInForce(state);
  const walks = walksOfNodes(state.documents.graph);
  const known = new Map<string, number[]>();
  const find = (node: string, walk: string | null): number[] => {
    if (!placement) return [0];
    const used = walks.get(node) ?? [];
    if (walk !== null || used.length === 0) return ranksOfNode(placement, node, walk);
    const all = used.flatMap((name) => ranksOfNode(placement, node, name));
    return [...new Set(all)].sort((a, b) => a - b);
  };
  return (node, walk) => {
    const key = `${node} ${walk ?? ""}`;
    const found = known.get(key) ?? find(node, walk);
    known.set(key, found);
    return found;
  };
}
