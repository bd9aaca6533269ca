// What becomes of references to values that are gone, and of merges whose sources change.
import { freshName, readLink, splitReference } from "../../names";
import { exclusive, factsOf, type Facts } from "../../routes";
import { hasHead, headOf, kindOf } from "../../tree";
import type { GraphDocument, Item } from "../../types";
import { changeWalk, linksOf, walkOf, withEdges } from "./document";
import { changeLayout, rekeyed, walkCanvas } from "./layout";
import { kept, mapped, withFields, withKey, withWalkPart } from "./records";
import { mapItems, mapReferences } from "./references";

type Gone = (reference: unknown) => boolean;

export function mergeRef(name: string): string {
  return `@merge.${name}`;
}

/** The merge that a reference names; null for another reference. */
export function mergeOf(reference: string): string | null {
  const [owner, name] = splitReference(reference);
  return owner === "@merge" ? name : null;
}

/** A Walk without what refers to gone values: edges, results, `until`, heads of choices and maps, sources of merges. */
export function withoutReferences(graph: GraphDocument, name: string, gone: Gone): GraphDocument {
  const made = changeWalk(graph, name, (walk) => {
    const edges = kept(linksOf(walk), (link) => {
      const { from, to } = readLink(link);
      return !gone(from) && !gone(to);
    });
    const results = Object.entries(walk.results ?? {}).filter(
      ([, result]) => !gone(typeof result === "string" ? result : result?.from),
    );
    const all = results.length === Object.keys(walk.results ?? {}).length;
    const left = all ? walk : withWalkPart(walk, "results", Object.fromEntries(results));
    const body = Array.isArray(walk.body) ? mapItems(walk.body, (item) => withoutValue(item, gone)) : walk.body;
    return withWalkPart(withEdges(left, edges), "body", body);
  });
  return changeSources(made, name, (sources) => kept(sources, (source) => !gone(source)));
}

function withoutValue(item: Item, gone: Gone): Item {
  const kind = kindOf(item);
  if (hasHead(kind)) return gone(headOf(item)) ? (withKey(item as object, kind, "") as Item) : item;
  return gone((item as { until?: unknown })?.until)
    ? (withFields(item as object, { until: null, drop_last: null }) as Item)
    : item;
}

/** Other sources for merges. One that is left with a single source gives way to it; one with none goes. */
export function changeSources(
  graph: GraphDocument,
  walk: string,
  change: (sources: readonly string[], name: string) => readonly string[],
): GraphDocument {
  const before = walkOf(graph, walk).merges ?? {};
  const after = mapped(before, (sources, name) =>
    Array.isArray(sources) ? (change(sources, name) as string[]) : sources,
  );
  if (after === before) return graph;
  const written = changeWalk(graph, walk, (body) => withWalkPart(body, "merges", after));
  return Object.entries(after).reduce((made, [name, sources]) => {
    if (sources === before[name] || sources.length > 1) return made;
    const [only] = sources;
    return only === undefined ? withoutMerge(made, walk, name) : dissolved(made, walk, name, only);
  }, written);
}

/** A merge out of a Walk, with what reads it. */
export function withoutMerge(graph: GraphDocument, walk: string, name: string): GraphDocument {
  const reference = mergeRef(name);
  return dropped(
    withoutReferences(graph, walk, (each) => each === reference),
    walk,
    name,
  );
}

/** A merge out of a Walk; what read it reads one of its sources. */
export function dissolved(graph: GraphDocument, walk: string, name: string, source: string): GraphDocument {
  const reference = mergeRef(name);
  return dropped(
    mapReferences(graph, walk, (each, side) => (side === "source" && each === reference ? source : each)),
    walk,
    name,
  );
}

function dropped(graph: GraphDocument, walk: string, name: string): GraphDocument {
  const made = changeWalk(graph, walk, (body) =>
    withWalkPart(body, "merges", withKey(body.merges ?? {}, name, undefined)),
  );
  return changeLayout(made, walkCanvas(walk), (layout) =>
    rekeyed(layout, (key) => (key === `merge:${name}` ? undefined : key)),
  );
}

/** The outputs that a reference stands for: of a merge its sources. */
export function sourcesOf(facts: Facts, reference: string): readonly string[] {
  const name = mergeOf(reference);
  return name === null ? [reference] : (facts.merges.get(name)?.sources ?? []);
}

/** The sources of `sources` that may be there together with a value: not in another branch of a choice. */
export function beside(facts: Facts, sources: readonly string[], from: string): string[] {
  const entry = facts.uses.get(splitReference(from)[0]);
  return sources.filter((source) => {
    const other = facts.uses.get(splitReference(source)[0]);
    return !entry || !other || !exclusive(entry, other);
  });
}

/**
 * One reference for a port's old value and a new one: a merge, where branches of a choice exclude each other. A source
 * of the old merge in the new one's branch gives way to it. null: they can't be merged.
 */
export function mergedWith(
  graph: GraphDocument,
  walk: string,
  old: string,
  from: string,
): { graph: GraphDocument; reference: string } | null {
  const facts = factsOf(walkOf(graph, walk));
  const [had, more] = [sourcesOf(facts, old), sourcesOf(facts, from)];
  if (mergeOf(old) !== null && more.every((source) => had.includes(source))) return { graph, reference: old };
  const clashing = new Set(more.flatMap((source) => beside(facts, had, source)));
  if (old === from || !had.length || !more.length || clashing.size >= had.length) return null;
  const sources = [...had.filter((source) => !clashing.has(source)), ...more];
  const name = mergeOf(old);
  if (name !== null)
    return { graph: changeSources(graph, walk, (each, other) => (other === name ? sources : each)), reference: old };
  if (clashing.size) return null;
  const known = [...facts.merges.values()].find((merge) => alike(merge.sources, sources));
  if (known) return { graph, reference: mergeRef(known.name) };
  const made = freshName(splitReference(more[0]!)[1], facts.merges.keys());
  return {
    graph: changeWalk(graph, walk, (body) => withWalkPart(body, "merges", { ...body.merges, [made]: sources })),
    reference: mergeRef(made),
  };
}

function alike(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((source) => b.includes(source));
}
