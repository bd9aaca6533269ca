// Edges around a use joined with one another, as if the use weren't there.
import type { Catalogue } from "../../../messages/answers";
import { readLink, type PlainLink } from "../../names";
import { portType } from "../../ports";
import { accepts } from "../../typing";
import { factsOf, routeOf, type Facts, type Route } from "../../routes";
import type { GraphDocument, Link, ResultFrom } from "../../types";
import { changeWalk, linksOf, walkOf, withEdges } from "./document";
import { changeSources } from "./merges";
import { mapped, mappedList, withWalkPart } from "./records";
import { mapResult } from "./references";

/** An edge out of the use, and those that take its place. */
export interface Joined {
  index: number;
  was: Link;
  now: Link[];
}

/**
 * For each edge out of a use the ones from where the use's matching port is fed; edges without a match stay out. One
 * that is there already isn't drawn again.
 */
export function joins(graph: GraphDocument, walk: string, use: string, catalogue: Catalogue): Joined[] {
  const body = walkOf(graph, walk);
  const facts = factsOf(body);
  const [into, out] = around(facts, use);
  const there = [...linksOf(body)];
  return out.flatMap((route): Joined[] => {
    const sources = matching(graph, walk, into, route, catalogue);
    if (!sources.length) return [];
    const now = sources
      .map((source) => join(facts, source, route))
      .filter((link) => !there.some((other) => sameEnds(link, other)));
    there.push(...now);
    return [{ index: route.index, was: linksOf(body)[route.index]!, now }];
  });
}

/** Results of a use -> where the use's matching port takes its value from. */
export function joinedResults(
  graph: GraphDocument,
  walk: string,
  use: string,
  catalogue: Catalogue,
): Record<string, ResultFrom[]> {
  const body = walkOf(graph, walk);
  const facts = factsOf(body);
  const [into] = around(facts, use);
  const found = facts.results.flatMap((route): [string, ResultFrom[]][] => {
    if (route.source.kind !== "use" || route.source.name !== use) return [];
    const source = matching(graph, walk, into, route, catalogue).find((each) => each.source.kind === "use");
    const was = body.results![route.target.name]!;
    return source ? [[route.target.name, [was, mapResult(was, () => source.from)]]] : [];
  });
  return Object.fromEntries(found);
}

/** A Walk in which the edges around these uses are joined, one use after the other. */
export function bridged(
  graph: GraphDocument,
  walk: string,
  uses: readonly string[],
  catalogue: Catalogue,
): GraphDocument {
  return uses.reduce((made, use) => {
    const sources = joinedSources(made, walk, use, catalogue);
    const results = joinedResults(made, walk, use, catalogue);
    const linked = joined(made, walk, joins(made, walk, use, catalogue), results);
    return changeSources(
      linked,
      walk,
      (each) => mappedList(each, (source) => sources.get(source) ?? source) as string[],
    );
  }, graph);
}

/** Ports of a use that merges take -> where the use's matching port takes its value from. */
function joinedSources(graph: GraphDocument, walk: string, use: string, catalogue: Catalogue): Map<string, string> {
  const facts = factsOf(walkOf(graph, walk));
  const [into] = around(facts, use);
  const found = facts.merging.flatMap((route): [string, string][] => {
    if (route.source.kind !== "use" || route.source.name !== use) return [];
    const source = matching(graph, walk, into, route, catalogue).find((each) => each.source.kind === "use");
    return source ? [[route.from, source.from]] : [];
  });
  return new Map(found);
}

/** With the edges and results replaced. */
export function joined(
  graph: GraphDocument,
  walk: string,
  links: readonly Joined[],
  results: Record<string, ResultFrom[]>,
): GraphDocument {
  return changeWalk(graph, walk, (body) => {
    const edges = links.length
      ? linksOf(body).flatMap((link, index) => links.find((each) => each.index === index)?.now ?? [link])
      : linksOf(body);
    const changed = mapped(body.results ?? {}, (result, name) => results[name]?.[1] ?? result);
    return withEdges(Object.keys(results).length ? withWalkPart(body, "results", changed) : body, edges);
  });
}

function around(facts: Facts, use: string): [into: Route[], out: Route[]] {
  const own = (end: Route["source"]) => end.kind === "use" && end.name === use;
  const through = facts.routes.filter((route) => own(route.source) !== own(route.target));
  return [through.filter((route) => own(route.target)), through.filter((route) => own(route.source))];
}

/** The routes into the one port whose value is of the kind that goes out: of the same name, else the first. */
function matching(graph: GraphDocument, walk: string, into: Route[], out: Route, catalogue: Catalogue): Route[] {
  const type = portType(graph, catalogue, walk, out.from, "source");
  const fits = (route: Route): boolean => {
    const given = portType(graph, catalogue, walk, route.to, "target");
    const source = portType(graph, catalogue, walk, route.from, "source");
    if (type === null || (given ?? source) === null)
      return route.target.port === out.source.port || into.length === 1;
    return accepts(type, given ?? source) === null && accepts(type, source) === null;
  };
  const fitting = into.filter(fits);
  const chosen = fitting.find((route) => route.target.port === out.source.port) ?? fitting[0];
  return chosen ? fitting.filter((route) => route.to === chosen.to) : [];
}

function join(facts: Facts, into: Route, out: Route): Link {
  const link: PlainLink = {
    from: into.from,
    to: out.to,
    each: into.each || out.each,
    collect: into.collect || out.collect,
  };
  return writeLink(meaningful(facts, link));
}

/** An edge without the flags that say nothing on its way. */
export function meaningful(facts: Facts, link: PlainLink): PlainLink {
  const way = routeOf(facts, link, 0, "");
  const collect = link.collect && way.left.length > 0;
  const each = link.each && (way.target.kind === "out" ? way.left.length > 0 && !collect : way.entered.length > 0);
  return { ...link, each, collect };
}

/** In the shortest form. */
export function writeLink({ from, to, each, collect }: PlainLink): Link {
  if (!each && !collect) return [from, to];
  return { from, to, ...(each ? { each } : {}), ...(collect ? { collect } : {}) };
}

export function sameLink(a: Link, b: Link): boolean {
  const [x, y] = [readLink(a), readLink(b)];
  return x.from === y.from && x.to === y.to && x.each === y.each && x.collect === y.collect;
}

function sameEnds(a: Link, b: Link): boolean {
  const [x, y] = [readLink(a), readLink(b)];
  return x.from === y.from && x.to === y.to;
}
