import { describe, expect, it } from "vitest";
import { join } from "../../src/document/pointer";
import { entries, flat } from "../../src/document/tree";
import { locate } from "../../src/store/locate";
import { graph, names } from "../panels/fixtures";

describe.each(names)("places of %s", (name) => {
  const document = graph(name);
  const components = { kind: "components" };

  it("finds nodes, streams and tasks", () => {
    for (const node of Object.keys(document.nodes ?? {})) {
      const at = locate(document, join("nodes", node, "params", "x"));
      expect(at).toMatchObject({ tab: "graph", canvas: components, selection: [`node:${node}`] });
    }
    document.streams?.forEach((stream, index) =>
      expect(locate(document, join("streams", index, "chunks")).selection).toEqual([`stream:${stream.name}`]),
    );
    for (const task of Object.keys(document.tasks ?? {}))
      expect(locate(document, join("tasks", task, "steps", 0))).toMatchObject({
        tab: "tasks",
        selection: [`task:${task}`],
      });
  });

  it("finds every item and edge of every Walk, from any place inside", () => {
    for (const [walk, value] of Object.entries(document.walks ?? {})) {
      const canvas = { kind: "walk", walk, inside: null };
      for (const entry of flat(entries(value)))
        for (const below of ["", "/when"])
          expect(locate(document, join("walks", walk) + entry.pointer + below)).toMatchObject({
            tab: "graph",
            canvas,
            selection: [entry.id],
          });
      value.edges?.forEach((_, index) =>
        expect(locate(document, join("walks", walk, "edges", index, "to"))).toMatchObject({
          canvas,
          selection: [`edge:${index}`],
        }),
      );
      expect(locate(document, join("walks", walk, "inputs", "x")).selection).toEqual(["@in"]);
      expect(locate(document, join("walks", walk, "results", "x")).selection).toEqual(["@out"]);
      expect(locate(document, join("walks", walk, "body")).selection).toEqual([]);
    }
  });
});

describe("places that are nowhere", () => {
  const document = graph("bagel");

  it("show the graph, or the tab they belong to", () => {
    for (const pointer of ["", "/name", "/walks/gone/body/0", "/streams/9", "/nodes"])
      expect(locate(document, pointer)).toMatchObject({
        tab: "graph",
        canvas: { kind: "components" },
        selection: [],
      });
    expect(locate(document, "/groups/0/ranks").tab).toBe("placement");
    expect(locate(document, "/ranks/1/device").tab).toBe("placement");
  });

  it("say what they are about", () => {
    expect(locate(document, "/walks/decode/body/1/times")).toMatchObject({
      place: "Walk decode",
      part: "loop tokens, times",
    });
    expect(locate(document, "/walks/decode/edges/0")).toMatchObject({ part: "start.token → llm.token" });
    expect(locate(document, "/states/main/capacity")).toMatchObject({ place: "State main", part: "capacity" });
  });
});
