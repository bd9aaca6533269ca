import { describe, expect, it } from "vitest";
import {
  endOf,
  exclusive,
  factsOf,
  routeOf,
  routesOf,
  sideBySide,
  type End,
  type Facts,
  type Route,
} from "../../src/document/routes";
import { cases, graphs, type RouteCase } from "./cases";

function end({ kind, name, port, entry }: End): unknown[] {
  return [kind, name, port, entry ? entry.order : null];
}

function row(route: Route): unknown {
  const { common, carried, backward, leave, enter, left, entered, pointer } = route;
  const facts = [common, carried, backward, leave, enter, [...left], [...entered], pointer];
  return [end(route.source), end(route.target), ...facts];
}

/** A route from a merge as the backend has it: one for each source, as if it were written alone. */
function apiece(facts: Facts, route: Route): Route[] {
  const merge = route.source.kind === "merge" ? facts.merges.get(route.source.name) : undefined;
  if (!merge) return [route];
  return merge.sources.map((from) => {
    const source = endOf(from, facts, "source");
    if (route.target.kind === "choice" || route.target.kind === "map") {
      const backward = route.target.place!.order <= source.entry!.order;
      return { ...route, source, backward, carried: backward && route.common > 0 };
    }
    const alone = routeOf(facts, { ...route, from }, route.index, route.pointer);
    // What a merge says of all of them holds for each that stands right in its branch.
    if (alone.source.entry?.loops.length === merge.choice?.loops.length)
      expect([alone.common, alone.left, alone.leave]).toEqual([route.common, route.left, route.leave]);
    const enter = route.enter === "first" ? "first" : alone.enter;
    return {
      ...alone,
      enter,
      target: route.target,
      ...(route.index < 0 ? { common: 0, backward: false, carried: false } : {}),
    };
  });
}

describe("routes", () => {
  const bundled = graphs();
  for (const [key, held] of Object.entries(cases.walks)) {
    it(`are classified as the backend does: ${key}`, () => {
      const facts = factsOf(held.walk);
      const all = (routes: readonly Route[]) => routes.flatMap((route) => apiece(facts, route)).map(row);
      expect(all(facts.routes)).toEqual(held.routes satisfies RouteCase[]);
      expect(all(facts.results)).toEqual(held.results);
      const heads = (kind: string) =>
        facts.heads
          .filter(({ target }) => target.kind === kind)
          .flatMap((route) => apiece(facts, route))
          .map(({ source, target, carried, backward, left }) => {
            return [end(source), target.place!.order, carried, backward, [...left]];
          });
      expect(heads("choice")).toEqual(held.choices ?? []);
      expect(heads("map")).toEqual(held.maps ?? []);
      const uses = [...facts.uses.values()];
      const beside = uses.flatMap((a) => uses.filter((b) => sideBySide(a, b)).map((b) => [a.name, b.name]));
      expect(beside).toEqual(held.beside);
      const apart = uses.flatMap((a) => uses.filter((b) => exclusive(a, b)).map((b) => [a.name, b.name]));
      expect(apart).toEqual(held.apart ?? []);
    });
  }

  it("are the same for a Walk as its author wrote it", () => {
    for (const [name, graph] of Object.entries(bundled))
      for (const walk of Object.keys(graph.walks ?? {}))
        expect(routesOf(graph, walk).map(row)).toEqual(cases.walks[`${name}/${walk}`]!.routes);
  });

  it("of a broken Walk are made without a throw", () => {
    const walk = { body: [{ loop: 3 }, null, 7, { else: [] }], edges: [null, ["a"], { from: 3 }, 4] } as never;
    const facts = factsOf(walk);
    expect(facts.routes.map((route) => [route.from, route.to])).toEqual([
      ["", ""],
      ["a", ""],
      ["", ""],
      ["", ""],
    ]);
  });

  it("of one Walk are worked out once", () => {
    const walk = { body: ["a"] };
    expect(factsOf(walk)).toBe(factsOf(walk));
  });
});
