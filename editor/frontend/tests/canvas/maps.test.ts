// Maps on a Walk's canvas: frames with a head, wires, layouts, drops, closed and entered.
import { describe, expect, test } from "vitest";
import { connected } from "../../src/canvas/gestures/connect";
import { inserted, placeAt } from "../../src/canvas/gestures/insert";
import { dropped } from "../../src/canvas/gestures/move";
import { elkLayout } from "../../src/canvas/layout/elk";
import { ModelMaker } from "../../src/canvas/model/model";
import { offers } from "../../src/canvas/quick/quick";
import { contains, overlap } from "../../src/canvas/shapes/geometry";
import type { ContainerData, Model, Point, Rect } from "../../src/canvas/shapes/types";
import { place, setClosed } from "../../src/document/edits";
import { accepts } from "../../src/document/typing";
import type { Canvas, GraphDocument, ItemId } from "../../src/document/types";
import type { Problem } from "../../src/messages/answers";
import { targetsOf } from "../../src/panels/commands/goto";
import { headingOf, subjectOf } from "../../src/panels/inspector/subject";
import { paletteOf } from "../../src/panels/palette/search";
import { placeOfEdge } from "../../src/taps/places";
import { locate } from "../../src/store/locate";
import { outlined } from "../panels/outlined";
import { portsCatalogue } from "./catalogue";

const node = (name: string) => [name, { component: `c.${name}` }] as const;
const graph = {
  name: "g",
  nodes: Object.fromEntries(["split", "draw", "tidy", "join"].map(node)),
  walks: {
    w: {
      inputs: { text: "text" },
      body: [
        "split",
        {
          map: "split.parts",
          bound: "100",
          width: "8",
          when: "n > 1",
          body: ["draw", { map: "draw.rows", as: "rows", bound: "4", body: ["tidy"] }],
        },
        "join",
      ],
      edges: [
        ["@in.text", "split.text"],
        { from: "split.parts", to: "draw.text", each: true },
        { from: "draw.rows", to: "tidy.text", each: true },
        { from: "tidy.image", to: "join.images", collect: "list" },
        ["@loop.items", "tidy.index"],
        { from: "draw.image", to: "@out.image", each: true },
      ],
      results: { all: { from: "draw.image", collect: true } },
    },
  },
} as unknown as GraphDocument;
const catalogue = portsCatalogue(graph);

function made(of: GraphDocument = graph, inside: ItemId | null = null, problems: Problem[] = []): Model {
  const canvas: Canvas = { kind: "walk", walk: "w", inside };
  return new ModelMaker().make({ graph: of, canvas, catalogue, problems, lit: null, ranks: new Map() });
}

const model = made();
const canvas: Canvas = { kind: "walk", walk: "w", inside: null };
const nodeOf = (id: string, of: Model = model) => of.nodes.find((each) => each.id === id);
const dataOf = (id: string, of: Model = model) => nodeOf(id, of)!.data as ContainerData;
const wires = (of: Model) => of.edges.map(({ id, source, target }) => `${id} ${source} ${target}`);
const box = (id: string): Rect => model.boxes.get(id)!;
const middle = ({ x, y, w, h }: Rect): Point => [x + w / 2, y + h / 2];

describe("a map on the canvas", () => {
  test("is a frame around its steps that says what it goes through", () => {
    const parents = Object.fromEntries(model.nodes.map(({ id, parentId }) => [id, parentId ?? null]));
    expect(parents).toMatchObject({
      "map:items": null,
      "use:draw": "map:items",
      "map:rows": "map:items",
      "use:tidy": "map:rows",
    });
    expect(dataOf("map:items")).toMatchObject({
      name: "items",
      bound: "100",
      width: "8",
      when: "n > 1",
      badge: "2",
      count: 2,
    });
    expect(dataOf("map:items").head).toMatchObject({ value: "split.parts", port: { wired: true } });
    expect(dataOf("map:rows")).toMatchObject({ name: "rows", bound: "4", width: "1" });
    expect(nodeOf("map:items")!.ariaLabel).toContain("map items over split.parts");
  });

  test("has wires to its head, into its steps and out of them", () => {
    expect(wires(model)).toEqual([
      "edge:0 @in use:split",
      "edge:1 use:split use:draw",
      "edge:2 use:draw use:tidy",
      "edge:3 use:tidy use:join",
      "edge:4 map:items use:tidy",
      "edge:5 use:draw @out",
      "head:map:items use:split map:items",
      "head:map:rows use:draw map:rows",
      "result:all use:draw @out",
    ]);
    for (const { source, target, sourceHandle, targetHandle, data } of model.edges) {
      expect(nodeOf(source)!.handles!.some(({ type, id }) => type === "source" && id === sourceHandle)).toBe(true);
      expect(nodeOf(target)!.handles!.some(({ type, id }) => type === "target" && id === targetHandle)).toBe(true);
      expect(data!.broken).toBe("");
    }
    const chips = Object.fromEntries(model.edges.map(({ id, data }) => [id, data!.chips]));
    expect(chips).toMatchObject({ "edge:1": ["each"], "edge:3": ["list"], "edge:5": ["each"], "head:map:items": [] });
  });

  test("marks a value that would go to the next item as broken", () => {
    const { edges, ...walk } = graph.walks!["w"]!;
    const wrong = {
      ...graph,
      walks: { w: { ...walk, edges: [...edges!, ["draw.image", "draw.text"]] } },
    } as GraphDocument;
    expect(made(wrong).edges.find(({ id }) => id === "edge:6")!.data!.broken).toContain("independent");
  });

  test("is laid out after its list and before what reads it, also with care", async () => {
    const apart = (of: (id: string) => Rect) => {
      expect(of("map:items").x).toBeGreaterThanOrEqual(of("use:split").x + of("use:split").w);
      expect(of("use:join").x).toBeGreaterThanOrEqual(of("map:items").x + of("map:items").w);
      for (const id of ["use:draw", "map:rows"]) expect(contains(of("map:items"), middle(of(id)))).toBe(true);
      expect(overlap(of("use:draw"), of("map:rows"))).toBe(false);
    };
    apart(box);
    const places = await elkLayout(model, canvas, null);
    const again = made(place(graph, canvas, Object.fromEntries(places)));
    apart((id) => again.boxes.get(id)!);
  });

  test("takes what is dropped in it, and what is put into it", () => {
    const inside: Point = [box("map:items").x + 30, box("map:items").y + box("map:items").h - 6];
    expect(placeAt({ canvas, model, at: inside }).parent).toBe("map:items");
    const [x, y] = inside;
    const [fx, fy] = middle(box("use:join"));
    const moved = dropped(graph, canvas, model, [{ id: "use:join", by: [x - fx, y - fy] }], {
      snap: true,
      keepParents: false,
    });
    expect(JSON.stringify(moved.walks!["w"]!.body[1])).toContain("join");
    const put = inserted(graph, { kind: "map" }, { canvas, model, catalogue, at: inside });
    expect(put.id).toBe("map:items_2");
    expect(offers(graph, catalogue, canvas, null).some(({ payload }) => payload.kind === "map")).toBe(true);
  });

  test("takes its list from a wire that ends at its head", () => {
    const bare = {
      ...graph,
      walks: { w: { body: ["split", { map: "", bound: "9", body: ["draw"] }] } },
    } as unknown as GraphDocument;
    const port = (name: string, type: string) => [{ name, type, optional: false, description: "" }];
    const lists = {
      ...catalogue,
      "c.split": { ...catalogue["c.split"]!, outputs: port("parts", "list of text") },
      "c.draw": { ...catalogue["c.draw"]!, inputs: port("text", "text") },
    };
    expect(accepts("text", "list of text")).not.toBeNull();
    const drawn = connected(bare, "w", "split.parts", "@map.map:items", lists);
    expect(drawn.walks!["w"]!.body[1]).toMatchObject({ map: "split.parts" });
    const fed = connected(drawn, "w", "split.parts", "draw.text", lists);
    expect(fed.walks!["w"]!.edges).toEqual([{ from: "split.parts", to: "draw.text", each: true }]);
    // A map without a list goes through what a wire brings item by item; one that has a list keeps it.
    const first = connected(bare, "w", "split.parts", "draw.text", lists).walks!["w"]!;
    expect(first).toMatchObject({ body: ["split", { map: "split.parts" }], edges: [{ each: true }] });
    const other = connected(
      {
        ...bare,
        walks: { w: { ...bare.walks!["w"]!, inputs: { more: "list of text" }, body: drawn.walks!["w"]!.body } },
      } as GraphDocument,
      "w",
      "@in.more",
      "draw.text",
      lists,
    );
    expect(other.walks!["w"]).toMatchObject({
      body: ["split", { map: "split.parts" }],
      edges: [{ from: "@in.more", each: true }],
    });
    const sent = connected(fed, "w", "draw.image", "@out.+", lists);
    expect(sent.walks!["w"]!.edges!.at(-1)).toEqual({ from: "draw.image", to: "@out.image", each: true });
    const kept = connected(sent, "w", "draw.image", "@result.+", lists);
    expect(kept.walks!["w"]!.results).toEqual({ image: { from: "draw.image", collect: true } });
    expect(() => connected(sent, "w", "draw.image", "@sink.+", lists)).toThrow(/stream from a step after/);
  });

  test("closes with its ports, and can be entered", () => {
    const closed = made(setClosed(graph, canvas, "map:items", true));
    expect(nodeOf("use:draw", closed)).toBeUndefined();
    expect(dataOf("map:items", closed).inputs.map(({ ref }) => ref)).toEqual(["draw.text", "@map.map:items"]);
    expect(dataOf("map:items", closed).outputs.map(({ ref }) => ref)).toEqual(["tidy.image", "draw.image"]);
    expect(dataOf("map:items", closed).inputs.at(-1)).toMatchObject({
      name: "list",
      ref: "@map.map:items",
      wired: true,
    });
    expect(wires(closed)).toContain("head:map:items use:split map:items");
    const held = { loop: "l", times: "2", body: graph.walks!["w"]!.body.slice(1, 2) };
    const deeper = {
      ...graph,
      walks: { w: { ...graph.walks!["w"]!, body: ["split", held, "join"] } },
    } as GraphDocument;
    const loop = dataOf("loop:l", made(setClosed(deeper, canvas, "loop:l", true)));
    expect(loop.inputs.map(({ name }) => name)).toEqual(["draw.text", "list of items"]);
    const entered = made(graph, "map:items");
    expect(wires(entered)).toContain("edge:1 @before use:draw");
    expect(wires(entered)).toContain("head:map:rows use:draw map:rows");
    expect(entered.nodes.map(({ id }) => id).toSorted()).toEqual([
      "@after",
      "@before",
      "map:rows",
      "use:draw",
      "use:tidy",
    ]);
  });

  test("shows problems where they are, and leads to them", () => {
    const pointers = ["/body/1/map", "/body/1/bound", "/body/1/body/1/width"];
    const shown = made(
      graph,
      null,
      pointers.map((at): Problem => ({ pointer: `/walks/w${at}`, code: "c", message: "m", severity: "error" })),
    );
    expect([dataOf("map:items", shown).problems.length, dataOf("map:rows", shown).problems.length]).toEqual([2, 1]);
    expect(shown.edges.find(({ id }) => id === "head:map:items")!.data!.broken).toBe("m");
    const places = pointers.map((pointer) => locate(graph, `/walks/w${pointer}`));
    expect(places.map(({ selection, part }) => [selection[0], part])).toEqual([
      ["map:items", "map items, list"],
      ["map:items", "map items, bound"],
      ["map:rows", "map rows, width"],
    ]);
  });

  test("is found in palette, outline, commands and inspector", () => {
    expect(
      paletteOf(catalogue, graph, "walk", "w").some(
        ({ payload, title }) => payload.kind === "map" && title === "Map",
      ),
    ).toBe(true);
    expect(outlined(graph, "w")).toContain("map items split.parts");
    expect(
      targetsOf(graph, [])
        .filter(({ kind }) => kind === "map")
        .map(({ title }) => title),
    ).toEqual(["items", "rows"]);
    for (const id of ["map:items", "head:map:items"]) {
      const subject = subjectOf(graph, { canvas, selection: [id] });
      expect(subject).toMatchObject({ kind: "item", entry: { id: "map:items" } });
      expect(headingOf(subject, graph)).toEqual({ kind: "map", title: "items" });
    }
    expect(placeOfEdge(graph, "w", "head:map:items")).toEqual({ walk: "w", source: "split.parts" });
  });
});
