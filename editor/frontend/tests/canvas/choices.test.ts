// Choices and merges on a Walk's canvas: frames, wires, layouts, drops, closed and entered.
import { describe, expect, test } from "vitest";
import { branchesStacked } from "../../src/canvas/layout/branches";
import { placeAt } from "../../src/canvas/gestures/insert";
import { dropped } from "../../src/canvas/gestures/move";
import { overlap } from "../../src/canvas/shapes/geometry";
import type { ContainerData, MergeData, Model, Point, Rect, UseData } from "../../src/canvas/shapes/types";
import { ModelMaker } from "../../src/canvas/model/model";
import { elkLayout } from "../../src/canvas/layout/elk";
import { place, setClosed, wrap } from "../../src/document/edits";
import type { Canvas, GraphDocument, ItemId } from "../../src/document/types";
import type { Problem } from "../../src/messages/answers";
import { placeOfEdge } from "../../src/taps/places";
import { locate } from "../../src/store/locate";
import { outlined } from "../panels/outlined";
import { portsCatalogue } from "./catalogue";

const node = (name: string) => [name, { component: `c.${name}` }] as const;
const graph = {
  name: "g",
  nodes: Object.fromEntries(["look", "draw", "photo", "tidy", "show"].map(node)),
  walks: {
    w: {
      inputs: { prompt: "text" },
      body: [
        "look",
        { choose: "look.kind", cases: { sketch: ["draw"], "a/b": ["photo", "tidy"] }, otherwise: [] },
        "show",
      ],
      merges: { picture: ["draw.image", "tidy.image"] },
      edges: [
        ["@in.prompt", "look.text"],
        ["look.text", "draw.text"],
        ["look.text", "photo.text"],
        ["photo.image", "tidy.image"],
        ["@merge.picture", "show.image"],
        ["@merge.picture", "@out.image"],
      ],
      results: { kept: "@merge.picture" },
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
const wires = (of: Model) => of.edges.map(({ id, source, target }) => `${id} ${source} ${target}`);
const box = (id: string): Rect => model.boxes.get(id)!;
const middle = ({ x, y, w, h }: Rect): Point => [x + w / 2, y + h / 2];

describe("a choice on the canvas", () => {
  test("is a frame with a frame for each branch, and a merge behind it", () => {
    const parents = Object.fromEntries(model.nodes.map(({ id, parentId }) => [id, parentId ?? null]));
    expect(parents).toMatchObject({
      "choose:0": null,
      "case:sketch": "choose:0",
      "case:a/b": "choose:0",
      "otherwise:0": "choose:0",
      "use:draw": "case:sketch",
      "use:tidy": "case:a/b",
      "merge:picture": null,
    });
    expect(nodeOf("choose:0")!.data as ContainerData).toMatchObject({
      head: { value: "look.kind" },
      otherwise: true,
    });
    expect((nodeOf("case:sketch")!.data as ContainerData).branch).toEqual({
      choice: "choose:0",
      own: ["w/draw"],
      others: ["w/photo", "w/tidy"],
    });
    expect((nodeOf("use:draw")!.data as UseData).others).toEqual(["w/photo", "w/tidy"]);
    expect((nodeOf("use:show")!.data as UseData).others).toEqual([]);
    expect((nodeOf("merge:picture")!.data as MergeData).sources).toEqual(["draw.image", "tidy.image"]);
    expect(model.nodes.every(({ ariaLabel }) => ariaLabel)).toBe(true);
    expect(nodeOf("choose:0")!.ariaLabel).toContain("choice by look.kind");
  });

  test("has wires to its value, into merges, and from them", () => {
    expect(wires(model)).toEqual([
      "edge:0 @in use:look",
      "edge:1 use:look use:draw",
      "edge:2 use:look use:photo",
      "edge:3 use:photo use:tidy",
      "edge:4 merge:picture use:show",
      "edge:5 merge:picture @out",
      "into:0:picture use:draw merge:picture",
      "into:1:picture use:tidy merge:picture",
      "head:choose:0 use:look choose:0",
      "result:kept merge:picture @out",
    ]);
    for (const { source, target, sourceHandle, targetHandle, data } of model.edges) {
      expect(nodeOf(source)!.handles!.some(({ type, id }) => type === "source" && id === sourceHandle)).toBe(true);
      expect(nodeOf(target)!.handles!.some(({ type, id }) => type === "target" && id === targetHandle)).toBe(true);
      expect(data!.broken).toBe("");
    }
  });

  test("is laid out: branches below one another, the merge behind, nothing over another", () => {
    const [first, second, rest] = ["case:sketch", "case:a/b", "otherwise:0"].map(box);
    expect(second!.y).toBeGreaterThanOrEqual(first!.y + first!.h);
    expect(rest!.y).toBeGreaterThanOrEqual(second!.y + second!.h);
    expect(box("merge:picture").x).toBeGreaterThan(box("choose:0").x + box("choose:0").w);
    expect(box("use:show").x).toBeGreaterThan(box("merge:picture").x);
    const tops = model.nodes.filter(({ parentId }) => !parentId);
    for (const a of tops)
      for (const b of tops) if (a !== b) expect(`${a.id} ${b.id} ${overlap(box(a.id), box(b.id))}`).toMatch(/false$/);
  });

  test("is laid out with care too", async () => {
    const places = await elkLayout(model, canvas, null);
    expect([...places.keys()]).toEqual(
      expect.arrayContaining(["use:draw", "use:tidy", "merge:picture", "otherwise:0"]),
    );
    const made2 = made(place(graph, canvas, Object.fromEntries(places)));
    const at = (id: string) => made2.boxes.get(id)!;
    expect(overlap(at("case:sketch"), at("case:a/b"))).toBe(false);
    expect(overlap(at("choose:0"), at("merge:picture"))).toBe(false);
  });

  test("finds places for a new merge and a new branch, beside and below what is there", () => {
    const { "merge:picture": _, "otherwise:0": __, ...rest } = Object.fromEntries(model.places);
    const later = made(place(graph, canvas, rest));
    const at = (id: string) => later.boxes.get(id)!;
    expect(at("merge:picture").x).toBeGreaterThanOrEqual(at("choose:0").x + at("choose:0").w);
    expect(at("otherwise:0").y).toBeGreaterThanOrEqual(at("case:a/b").y + at("case:a/b").h);
  });

  test("is put around steps with its branches below one another", () => {
    const flatGraph = { ...graph, walks: { w: { body: ["look", "draw", "photo", "show"] } } } as GraphDocument;
    const side: Record<string, Point> = {
      "use:look": [0, 0],
      "use:draw": [200, 0],
      "use:photo": [220, 40],
      "use:show": [600, 0],
    };
    const before = place(flatGraph, canvas, side);
    const wrapped = wrap(before, "w", ["use:draw", "use:photo"], "choose");
    const stacked = branchesStacked(wrapped.graph, canvas, made(before), "w", wrapped.id);
    const now = made(stacked);
    expect(overlap(now.boxes.get("case:a")!, now.boxes.get("case:b")!)).toBe(false);
    expect(now.boxes.get("use:draw")).toMatchObject({ x: 200, y: 0 });
  });

  test("takes what is dropped on it into the nearest branch", () => {
    const at = (point: Point) => placeAt({ canvas, model, at: point });
    expect(at(middle(box("otherwise:0")))).toEqual({ parent: "otherwise:0", index: 0 });
    const head: Point = [box("choose:0").x + 40, box("choose:0").y + 8];
    expect(at(head)).toEqual({ parent: "case:sketch", index: 0 });
    const foot: Point = [box("choose:0").x + 4, box("choose:0").y + box("choose:0").h - 4];
    expect(at(foot).parent).toBe("otherwise:0");
    const [x, y] = middle(box("otherwise:0"));
    const [fx, fy] = middle(box("use:show"));
    const moved = dropped(graph, canvas, model, [{ id: "use:show", by: [x - fx, y - fy] }], {
      snap: true,
      keepParents: false,
    });
    expect(moved.walks!["w"]!.body[1]).toMatchObject({ otherwise: ["show"] });
    const frame = dropped(graph, canvas, model, [{ id: "case:a/b", by: [900, 900] }], {
      snap: true,
      keepParents: false,
    });
    expect(frame.walks!["w"]!.body).toEqual(graph.walks!["w"]!.body);
  });

  test("closes with its ports, and so does a branch", () => {
    const closed = made(setClosed(graph, canvas, "choose:0", true));
    expect(nodeOf("use:draw", closed)).toBeUndefined();
    const data = nodeOf("choose:0", closed)!.data as ContainerData;
    expect(data.inputs.map(({ ref }) => ref)).toEqual(["draw.text", "photo.text", "@choice.choose:0"]);
    expect(data.outputs.map(({ ref }) => ref)).toEqual(["draw.image", "tidy.image"]);
    expect(wires(closed)).toContain("into:0:picture choose:0 merge:picture");
    expect(wires(closed)).toContain("head:choose:0 use:look choose:0");
    const branch = made(setClosed(graph, canvas, "case:a/b", true));
    expect((nodeOf("case:a/b", branch)!.data as ContainerData).outputs.map(({ ref }) => ref)).toEqual(["tidy.image"]);
  });

  test("hides its merges in a closed container around it", () => {
    const loop = { loop: "l", times: "2", body: graph.walks!["w"]!.body.slice(0, 2) };
    const wrapped = { ...graph, walks: { w: { ...graph.walks!["w"]!, body: [loop, "show"] } } } as GraphDocument;
    expect(nodeOf("merge:picture", made(wrapped))!.parentId).toBe("loop:l");
    const closed = made(setClosed(wrapped, canvas, "loop:l", true));
    expect(nodeOf("merge:picture", closed)).toBeUndefined();
    expect((nodeOf("loop:l", closed)!.data as ContainerData).outputs.map(({ ref }) => ref)).toEqual([
      "@merge.picture",
    ]);
    expect(wires(closed)).toContain("edge:4 loop:l use:show");
    expect(wires(made(wrapped, "loop:l"))).toContain("edge:4 merge:picture @after");
  });

  test("can be entered, and its branches", () => {
    const choice = made(graph, "choose:0");
    expect(wires(choice)).toContain("into:0:picture use:draw @after");
    expect(wires(choice)).toContain("edge:1 @before use:draw");
    const branch = made(graph, "case:a/b");
    expect(branch.nodes.map(({ id }) => id).toSorted()).toEqual(["@after", "@before", "use:photo", "use:tidy"]);
  });

  test("shows problems where they are: at the choice, the case, the merge, the wire", () => {
    const problem = (pointer: string): Problem => ({ pointer, code: "c", message: "m", severity: "error" });
    const pointers = ["/body/1/choose", "/body/1/cases/a~1b", "/merges/picture/1", "/merges/picture"];
    const shown = made(
      graph,
      null,
      pointers.map((pointer) => problem(`/walks/w${pointer}`)),
    );
    const count = (id: string) => (nodeOf(id, shown)!.data as ContainerData).problems.length;
    expect([count("choose:0"), count("case:a/b"), count("case:sketch"), count("merge:picture")]).toEqual([
      1, 1, 0, 2,
    ]);
    expect(shown.edges.find(({ id }) => id === "into:1:picture")!.data!.broken).toBe("m");
    expect(shown.edges.find(({ id }) => id === "head:choose:0")!.data!.broken).toBe("m");
    const places = pointers.map((pointer) => locate(graph, `/walks/w${pointer}`).selection[0]);
    expect(places).toEqual(["choose:0", "case:a/b", "merge:picture", "merge:picture"]);
  });

  test("keeps the places of its merges, and taps their wires", () => {
    const placed = place(graph, canvas, { "merge:picture": [5, 5] });
    expect(made(placed).places.get("merge:picture")).toEqual([5, 5]);
    expect(placeOfEdge(graph, "w", "into:1:picture")).toEqual({ walk: "w", source: "tidy.image" });
    expect(placeOfEdge(graph, "w", "head:choose:0")).toEqual({ walk: "w", source: "look.kind" });
  });

  test("stands in the outline, with its merges", () => {
    expect(outlined(graph, "w")).toEqual([
      "in prompt",
      "use look",
      "choose Choice look.kind",
      "  case sketch",
      "    use draw",
      "  case a/b",
      "    use photo",
      "    use tidy",
      "  otherwise Otherwise",
      "use show",
      "merge picture draw.image, tidy.image",
      "out image, kept",
    ]);
  });
});
