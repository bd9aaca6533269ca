// Where in the placement view a problem of the plan is shown. Pure.
import type { Problem } from "../../messages/answers";
import { split } from "../../document/pointer";
import type { GraphDocument } from "../../document/types";
import { ANY, hostOf } from "../../document/placement/hosts";
import type { PlacementDocument } from "../../document/placement/schema.generated";

export interface Spot {
  /** The lane. */
  rank: number | null;
  /** Position of the group. */
  group: number | null;
  /** `tensor_parallel`, `memory` ... of the group. */
  field: string | null;
  /** The chip. */
  node: string | null;
  /** About the graph, not the placement. */
  graph: boolean;
}

/** `placement`: the one that was planned. */
export function spotOf(problem: Problem, placement: PlacementDocument, graph: GraphDocument): Spot {
  const [document, section, key, field] = split(problem.pointer);
  const spot: Spot = { rank: null, group: null, field: null, node: null, graph: document === "graph" };
  if (spot.graph) return { ...spot, node: section === "nodes" && key !== undefined ? key : null };
  if (section === "ranks" && key !== undefined) return { ...spot, rank: placement.ranks[Number(key)]?.rank ?? null };
  if (section === "groups" && key !== undefined)
    return { ...spot, group: Number(key), field: field ?? null, node: named(problem.message, graph, "node") };
  if (problem.code === "unplaced") return { ...spot, node: named(problem.message, graph, "node") };
  return { ...spot, rank: rankNamed(problem, placement) };
}

/** The name that the sentence is about (`node `llm``). */
export function named(message: string, graph: GraphDocument, what: "node" | "state"): string | null {
  const name = new RegExp(`${what} \`([^\`]+)\``).exec(message)?.[1];
  const known = what === "node" ? graph.nodes : graph.states;
  return name !== undefined && name in (known ?? {}) ? name : null;
}

/** The device that the sentence begins with, and its host if that isn't the one that plans. */
export function deviceNamed({ message }: Problem): { name?: string; host?: string } {
  const [, name, host] = /^`([^`]+)`(?: of host `([^`]+)`)?/.exec(message) ?? [];
  return { ...(name === undefined ? {} : { name }), ...(host === undefined ? {} : { host }) };
}

function rankNamed(problem: Problem, placement: PlacementDocument): number | null {
  if (problem.code === "device_full") {
    const { name, host } = deviceNamed(problem);
    const at = (rank: number) => host === undefined || [host, ANY].includes(hostOf(placement, rank) ?? "");
    return placement.ranks.find((entry) => entry.device === name && at(entry.rank))?.rank ?? null;
  }
  if (problem.code !== "idle_rank" && problem.code !== "idle_gpu") return null;
  const rank = Number(/rank (\d+)/.exec(problem.message)?.[1]);
  return placement.ranks.some((entry) => entry.rank === rank) ? rank : null;
}
