// Problems stay with what they are of while the next check is under way: an edit before it in a list moves its pointer.
import type { Problem } from "../messages/answers";
import { at, isUnder, join, split } from "../document/pointer";
import { readLink } from "../document/names";
import { factsOf } from "../document/routes";
import type { GraphDocument, Walk } from "../document/types";

/** The problems of a graph as those of the edited one; what is no longer there has none. */
export function followed(
  problems: readonly Problem[],
  before: GraphDocument,
  after: GraphDocument,
): readonly Problem[] {
  const found = problems.flatMap((problem) => {
    const pointer = moved(problem.pointer, before, after);
    if (pointer === null) return [];
    return pointer === problem.pointer ? problem : { ...problem, pointer };
  });
  const same = found.length === problems.length && found.every((problem, index) => problem === problems[index]);
  return same ? problems : found;
}

function moved(pointer: string, before: GraphDocument, after: GraphDocument): string | null {
  const [section, name, part] = split(pointer);
  if (section === undefined || name === undefined) return pointer;
  const base = join(section, name);
  const [old, now] = [at(before, base), at(after, base)];
  if (old === now) return pointer;
  if (now === undefined) return old === undefined ? pointer : null;
  if (section !== "walks" || part === undefined) return pointer;
  const [walk, next] = [old as Walk, now as Walk];
  const rest = pointer.slice(base.length);
  const way = part === "edges" ? edge(rest, walk, next) : part === "body" ? item(rest, walk, next) : rest;
  return way === null ? null : base + way;
}

function item(rest: string, before: Walk, after: Walk): string | null {
  const entry = factsOf(before).list.findLast((one) => isUnder(rest, one.pointer));
  if (!entry) return rest;
  const now = factsOf(after).byId.get(entry.id);
  return now ? now.pointer + rest.slice(entry.pointer.length) : null;
}

function edge(rest: string, before: Walk, after: Walk): string | null {
  const [, index = ""] = split(rest);
  const old = before.edges?.[Number(index)];
  if (!old) return rest;
  const { from, to } = readLink(old);
  const now = (after.edges ?? []).map(readLink).findIndex((link) => link.from === from && link.to === to);
  return now < 0 ? null : join("edges", now) + rest.slice(join("edges", index).length);
}
