// Where a tap can lie: outputs of a Walk's uses, and its inputs. Pure.
import { factsOf } from "../document/routes";
import { splitReference } from "../document/names";
import type { GraphDocument } from "../document/types";

/** As the service names it. */
export interface Place {
  walk: string;
  /** `use.port`, `@in.name`. */
  source: string;
}

/** null: what comes from there can't be tapped (a loop's index, a stream). */
export function placeOf(walk: string | null, from: string): Place | null {
  if (walk === null) return null;
  const [owner, name] = splitReference(from);
  return name && (owner === "@in" || !owner.startsWith("@")) ? { walk, source: from } : null;
}

/** The place that an edge of a Walk comes from, by its id on the canvas. */
export function placeOfEdge(graph: GraphDocument, walk: string, id: string): Place | null {
  const body = graph.walks?.[walk];
  if (!body) return null;
  const [kind, rest = ""] = [id.slice(0, id.indexOf(":")), id.slice(id.indexOf(":") + 1)];
  const facts = factsOf(body);
  const route =
    kind === "edge"
      ? facts.routes[Number(rest)]
      : kind === "result"
        ? facts.results.find(({ target }) => target.name === rest)
        : undefined;
  return route ? placeOf(walk, route.from) : null;
}

/** Ids on the canvas of the edges that come from there. */
export function edgesFrom(graph: GraphDocument, { walk, source }: Place): string[] {
  const body = graph.walks?.[walk];
  if (!body) return [];
  const { routes, results } = factsOf(body);
  return [
    ...routes.flatMap((route) => (route.from === source ? [`edge:${route.index}`] : [])),
    ...results.flatMap((route) => (route.from === source ? [`result:${route.target.name}`] : [])),
  ];
}

/** Seconds between two samples. */
export const INTERVALS: readonly { value: string; label: string }[] = [
  { value: "0.05", label: "20 a second" },
  { value: "0.25", label: "4 a second" },
  { value: "1", label: "every second" },
  { value: "5", label: "every 5 s" },
];

export const INSIDE =
  "It lies in a loop that the device runs as a whole: runs that start from now are stepped while it is armed.";
