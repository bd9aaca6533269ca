// Flags of edges that follow from where their ends stand, once items were moved, wrapped or unwrapped.
import { readLink, readResult, type PlainLink } from "../../names";
import { factsOf, mapLeft, type Facts, type Route } from "../../routes";
import type { GraphDocument, Link, ResultFrom } from "../../types";
import { meaningful, writeLink } from "./bridge";
import { changeWalk, linksOf, walkOf, withEdges } from "./document";
import { mapped, mappedList, withFields, withWalkPart } from "./records";

/**
 * Edges and results that leave a map now and left none before are collected, or go to the client one by one. Flags that
 * said something before and say nothing any more go.
 */
export function reflagged(graph: GraphDocument, walk: string, before: Facts): GraphDocument {
  const after = factsOf(walkOf(graph, walk));
  const edged = changeWalk(graph, walk, (body) =>
    withEdges(
      body,
      mappedList(linksOf(body), (link, index) => {
        const plain = readLink(link);
        const wanted = wantedFlags(plain, before, after, before.routes[index], after.routes[index]!);
        return wanted.each === plain.each && wanted.collect === plain.collect ? link : withFlags(link, wanted);
      }),
    ),
  );
  const { results } = walkOf(edged, walk);
  if (!results) return edged;
  const route = (facts: Facts, name: string) => facts.results.find(({ target }) => target.name === name);
  const changed = mapped(results, (result, name) =>
    resultFlagged(result, before, after, route(before, name), route(after, name)!),
  );
  return changed === results ? edged : changeWalk(edged, walk, (body) => withWalkPart(body, "results", changed));
}

function wantedFlags(
  link: PlainLink,
  before: Facts,
  after: Facts,
  was: Route | undefined,
  is: Route,
): Pick<PlainLink, "each" | "collect"> {
  // A merge can't be collected: its readers stay as they are, and the check says what to do.
  if (leavesAnew(before, after, was, is) && (is.source.kind !== "merge" || is.target.kind === "out"))
    return is.target.kind === "out" ? { each: true, collect: false } : { ...link, collect: true };
  const [said, says] = [meaningful(before, link), meaningful(after, link)];
  return {
    each: link.each && (says.each || !said.each),
    collect: says.collect || !said.collect ? link.collect : false,
  };
}

function resultFlagged(
  result: ResultFrom,
  before: Facts,
  after: Facts,
  was: Route | undefined,
  is: Route,
): ResultFrom {
  const { from, collect } = readResult(result);
  const base = typeof result === "string" ? { from } : result;
  if (leavesAnew(before, after, was, is) && is.source.kind !== "merge") return { ...base, collect: true };
  if (!collect || is.left.length || !was?.left.length) return result;
  const made = withFields(base, { collect: null });
  return Object.keys(made).length === 1 ? from : made;
}

/** True if a value for every item of a map would be lost but for the last, and wasn't before. */
function leavesAnew(before: Facts, after: Facts, was: Route | undefined, is: Route): boolean {
  if (mapLeft(after, is) === null || is.leave !== "last") return false;
  return was === undefined || was.leave !== "last" || mapLeft(before, was) === null;
}

/** An edge with other flags; one without any is written in the short form. */
export function withFlags(link: Link, { each, collect }: Pick<PlainLink, "each" | "collect">): Link {
  const { from, to } = readLink(link);
  if (Array.isArray(link)) return writeLink({ from, to, each, collect });
  const made = withFields(link, { each: each || null, collect: collect || null });
  return Object.keys(made).length === 2 ? [from, to] : made;
}
