// Where a tap can lie: outputs of a Walk's uses, and its inputs. Pure.
import { factsOf, type Route } from "../document/routes";
import { splitReference } from "../document/names";
import type { GraphDocument } from "../document/types";
import { strings } from "../strings";

/** As the service names it. */
export interface Place {
  walk: string;
  /** `use.port`, `@in.name`. */
  source: string;
  /** The end of an edge out of a loop, whose values aren't those of every iteration. */
  to?: string;
}

/** null: what comes from there can't be tapped (a loop's index, a stream). */
export function placeOf(walk: string | null, from: string): Place | null {
  if (walk === null) return null;
  const [owner, name] = splitReference(from);
  return name && (owner === "@in" || !owner.startsWith("@")) ? { walk, source: from } : null;
}

/** The place whose values go over a route: what leaves its source, or what leaves the loops that it goes out of. */
export function placeOfRoute(walk: string, route: Route): Place | null {
  const place = placeOf(walk, route.from);
  return place && route.leave !== "none" ? { ...place, to: route.to } : place;
}

/** The place whose values go over an edge of a Walk, by its id on the canvas. */
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
        : kind === "into"
          ? facts.merging.find(({ index, target }) => `${index}:${target.name}` === rest)
          : kind === "head"
            ? facts.heads.find(({ target }) => target.name === rest)
            : undefined;
  return route ? placeOfRoute(walk, route) : null;
}

/** Ids on the canvas of the edges whose values are seen there. */
export function edgesOf(graph: GraphDocument, { walk, source, to = "" }: Place): string[] {
  const body = graph.walks?.[walk];
  if (!body) return [];
  const { routes, results, merging, heads } = factsOf(body);
  const seen = (route: Route) => route.from === source && (placeOfRoute(walk, route)?.to ?? "") === to;
  return [
    ...routes.flatMap((route) => (seen(route) ? [`edge:${route.index}`] : [])),
    ...results.flatMap((route) => (seen(route) ? [`result:${route.target.name}`] : [])),
    ...merging.flatMap((route) => (seen(route) ? [`into:${route.index}:${route.target.name}`] : [])),
    ...heads.flatMap((route) => (seen(route) ? [`head:${route.target.name}`] : [])),
  ];
}

/** Seconds between two samples. */
export const INTERVALS: readonly { value: string; label: string }[] = [
  { value: "0.05", label: strings.taps.n20ASecond },
  { value: "0.25", label: strings.taps.n4ASecond },
  { value: "1", label: strings.taps.everySecond },
  { value: "5", label: strings.taps.every5S },
];

export const INSIDE = strings.taps.itLiesInADevice;
