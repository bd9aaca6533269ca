// Differences between two placements of a graph, in sentences. Pure.
import type { GraphDocument } from "../document/types";
import { whereabouts } from "../document/placement/resolve";
import type { PlacementDocument } from "../document/placement/schema.generated";
import { strings } from "../strings";

export interface PlacementChange {
  kind: "added" | "removed" | "changed";
  text: string;
}

/** `before` runs, `after` is open. Empty where every component stays and every rank keeps its device and memory. */
export function placementDiff(
  before: PlacementDocument,
  after: PlacementDocument,
  graph: GraphDocument,
): PlacementChange[] {
  return [...deviceChanges(before, after), ...moves(before, after, graph), ...memoryChanges(before, after)];
}

function deviceChanges(before: PlacementDocument, after: PlacementDocument): PlacementChange[] {
  const was = new Map(before.ranks.map((entry) => [entry.rank, entry.device]));
  const is = new Map(after.ranks.map((entry) => [entry.rank, entry.device]));
  const found: PlacementChange[] = [];
  for (const [rank, device] of is) {
    const old = was.get(rank);
    if (old === undefined) found.push({ kind: "added", text: strings.deploy.rankWithDevice(rank, device) });
    else if (old !== device) found.push({ kind: "changed", text: strings.deploy.rankMoves(rank, old, device) });
  }
  for (const [rank, device] of was)
    if (!is.has(rank)) found.push({ kind: "removed", text: strings.deploy.rankWithDevice(rank, device) });
  return found;
}

function moves(before: PlacementDocument, after: PlacementDocument, graph: GraphDocument): PlacementChange[] {
  return Object.keys(graph.nodes ?? {}).flatMap((node) => {
    const was = places(before, graph, node);
    const is = places(after, graph, node);
    return was === is ? [] : [{ kind: "changed" as const, text: `${node}: ${was} → ${is}` }];
  });
}

/** `rank 0`, `rank 0 in decode; rank 1 in read_text`. */
function places(placement: PlacementDocument, graph: GraphDocument, node: string): string {
  const found = whereabouts(placement, graph, node);
  const named = found.map(({ ranks, walks }) => {
    const where = ranks.length === 0 ? "nowhere" : `${ranks.length > 1 ? "ranks" : "rank"} ${ranks.join(", ")}`;
    return found.length > 1 ? strings.deploy.inWithWalks(where, walks.join(", ")) : where;
  });
  return named.sort().join("; ");
}

function memoryChanges(before: PlacementDocument, after: PlacementDocument): PlacementChange[] {
  const ranks = new Set([...before.ranks, ...after.ranks].map((entry) => entry.rank));
  return [...ranks].flatMap((rank) => {
    const was = memoryOf(before, rank);
    const is = memoryOf(after, rank);
    const both = [before, after].every((placement) => placement.ranks.some((entry) => entry.rank === rank));
    return was === is || !both
      ? []
      : [{ kind: "changed" as const, text: strings.deploy.memoryOfRank(rank, was, is) }];
  });
}

/** As its groups say it. */
function memoryOf(placement: PlacementDocument, rank: number): string {
  const said = placement.groups.filter((group) => group.ranks.includes(rank)).map((group) => group.memory ?? null);
  return said.length === 0 || said.includes(null) ? strings.deploy.theRest : said.map(String).join(" + ");
}
