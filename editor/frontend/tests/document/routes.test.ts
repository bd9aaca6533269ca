import { describe, expect, it } from "vitest";
import { factsOf, routesOf, sideBySide, type End, type Route } from "../../src/document/routes";
import { cases, graphs, type RouteCase } from "./cases";

function end({ kind, name, port, entry }: End): unknown[] {
  return [kind, name, port, entry ? entry.order : null];
}

function row(route: Route): unknown {
  const { common, carried, backward, leave, enter, left, entered, pointer } = route;
  const facts = [common, carried, backward, leave, enter, [...left], [...entered], pointer];
  return [end(route.source), end(route.target), ...facts];
}

describe("routes", () => {
  const bundled = graphs();
  for (const [key, held] of Object.entries(cases.walks)) {
    it(`are classified as the backend does: ${key}`, () => {
      const facts = factsOf(held.walk);
      expect(facts.routes.map(row)).toEqual(held.routes satisfies RouteCase[]);
      expect(facts.results.map(row)).toEqual(held.results);
      const uses = [...facts.uses.values()];
      const beside = uses.flatMap((a) => uses.filter((b) => sideBySide(a, b)).map((b) => [a.name, b.name]));
      expect(beside).toEqual(held.beside);
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
