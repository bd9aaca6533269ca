import { expect, test } from "vitest";
import {
  aligned,
  around,
  boxesOf,
  distributed,
  holderAt,
  indexAt,
  inSight,
  type Holder,
} from "../../src/canvas/shapes/geometry";
import { dropped, reparents } from "../../src/canvas/gestures/move";
import { placeAt, inserted } from "../../src/canvas/gestures/insert";
import { arranged, layered } from "../../src/canvas/layout/layered";
import { ModelMaker } from "../../src/canvas/model/model";
import type { Model, Piece, Point, Rect } from "../../src/canvas/shapes/types";
import { back, forward, slotFor } from "../../src/canvas/edges/paths";
import { found, offers } from "../../src/canvas/quick/quick";
import { keyOf } from "../../src/canvas/keyboard";
import { canvasLayout } from "../../src/document/edits";
import { entries, flat } from "../../src/document/tree";
import type { Component } from "../../src/messages/answers";
import type { GraphDocument } from "../../src/document/types";

const canvas = { kind: "walk", walk: "w", inside: null } as const;

function component(name: string, takes: string[], makes: string[]): Component {
  const port = (type: string, index: number) => ({ name: `p${index}`, type, optional: true, description: "" });
  const rest = {
    description: "",
    params: {},
    states: [],
    cost: "compute",
    weights: null,
    families: [],
    host: false,
    available: true,
  };
  return { name, inputs: takes.map(port), outputs: makes.map(port), ...rest };
}

const catalogue = {
  "a.b": component("a.b", ["tokens"], ["tokens"]),
  "c.d": component("c.d", ["image"], ["latents: float[n]"]),
};

function graph(): GraphDocument {
  return {
    name: "g",
    nodes: { a: { component: "a.b" }, b: { component: "a.b" }, c: { component: "a.b" } },
    walks: {
      w: {
        body: ["a", { loop: "l", times: "2", body: ["b"] }, "c", { parallel: ["d"] }],
        edges: [
          ["a.p0", "b.p0"],
          ["b.p0", "c.p0"],
        ],
      },
    },
  } as GraphDocument;
}

function modelOf(document: GraphDocument): Model {
  return new ModelMaker().make({ graph: document, canvas, catalogue, problems: [], lit: null, ranks: new Map() });
}

function by(model: Model, id: string, to: Point): Point {
  const box = model.boxes.get(id) as Rect;
  return [to[0] - box.x - box.w / 2, to[1] - box.y - box.h / 2];
}

function middle(model: Model, id: string): Point {
  const box = model.boxes.get(id) as Rect;
  return [box.x + box.w / 2, box.y + box.h / 2];
}

test("a container grows around its children, never below its least size", () => {
  const pad = { top: 40, right: 20, bottom: 10, left: 20 };
  const one = { x: 100, y: 100, w: 50, h: 50 };
  expect(around([one], pad, [0, 0])).toEqual({ x: 80, y: 60, w: 90, h: 100 });
  expect(around([one, { x: 0, y: 300, w: 10, h: 10 }], pad, [0, 0])).toEqual({ x: -20, y: 60, w: 190, h: 260 });
  expect(around([one], pad, [400, 300])).toMatchObject({ w: 400, h: 300 });
});

test("the innermost container under a point takes what is dropped, never what is dragged itself", () => {
  const holders: Holder[] = [
    { id: "outer", depth: 0, rect: { x: 0, y: 0, w: 400, h: 400 } },
    { id: "inner", depth: 1, rect: { x: 100, y: 100, w: 100, h: 100 } },
  ];
  expect(holderAt(holders, [150, 150], new Set())?.id).toBe("inner");
  expect(holderAt(holders, [150, 150], new Set(["inner"]))?.id).toBe("outer");
  expect(holderAt(holders, [500, 0], new Set())).toBeNull();
});

test("the place in a list follows the columns, in a parallel the rows", () => {
  const row = [0, 100, 200].map((x) => ({ x, y: 0, w: 50, h: 50 }));
  expect([-10, 60, 130, 900].map((x) => indexAt(row, [x, 0], false))).toEqual([0, 1, 2, 3]);
  const one = [{ x: 0, y: 100, w: 50, h: 50 }];
  expect([0, 200].map((y) => indexAt(one, [30, y], false))).toEqual([0, 1]);
  const column = [0, 100].map((y) => ({ x: 0, y, w: 50, h: 50 }));
  expect([0, 60, 400].map((y) => indexAt(column, [0, y], true))).toEqual([0, 1, 2]);
});

test("dragging a step into a loop makes it the loop's, dragging it out takes it back, a small move neither", () => {
  const document = graph();
  const model = modelOf(document);
  const into = [{ id: "use:c", by: by(model, "use:c", middle(model, "loop:l")) }];
  expect(reparents(model, into, null)).toMatchObject([{ ids: ["use:c"], parent: "loop:l" }]);
  const options = { snap: true, keepParents: false };
  const inside = dropped(document, canvas, model, into, options);
  const parentOf = (made: GraphDocument, id: string) =>
    flat(entries(made.walks!["w"]!)).find((entry) => entry.id === id)?.parent?.id ?? null;
  expect(parentOf(inside, "use:c")).toBe("loop:l");
  const model2 = modelOf(inside);
  expect(reparents(model2, [{ id: "use:c", by: [0, 600] }], null)).toMatchObject([{ ids: ["use:c"], parent: null }]);
  expect(parentOf(dropped(inside, canvas, model2, [{ id: "use:c", by: [0, 600] }], options), "use:c")).toBeNull();
  expect(reparents(model2, [{ id: "use:b", by: [8, 8] }], null)).toEqual([]);
  const kept = dropped(document, canvas, model, into, { snap: true, keepParents: true });
  expect(parentOf(kept, "use:c")).toBeNull();
});

test("the first move writes down where everything stands, and moves no other thing", () => {
  const document = graph();
  const model = modelOf(document);
  const moved = dropped(document, canvas, model, [{ id: "use:a", by: [0, -80] }], {
    snap: false,
    keepParents: false,
  });
  const after = modelOf(moved);
  expect(after.placed).toBe(true);
  for (const [id, point] of model.places)
    expect([id, after.places.get(id)]).toEqual([id, id === "use:a" ? [point[0], point[1] - 80] : point]);
});

test("a moved container takes what it holds along", () => {
  const document = graph();
  const model = modelOf(document);
  const after = modelOf(
    dropped(document, canvas, model, [{ id: "loop:l", by: [0, 400] }], { snap: false, keepParents: true }),
  );
  const [before, now] = [model.boxes.get("loop:l") as Rect, after.boxes.get("loop:l") as Rect];
  expect([now.x - before.x, now.y - before.y]).toEqual([0, 400]);
  expect(after.places.get("use:c")).toEqual(model.places.get("use:c"));
});

test("what is dropped over a container goes into it, a component with a node of its own", () => {
  const document = graph();
  const model = modelOf(document);
  const at = middle(model, "loop:l");
  expect(placeAt({ canvas, model, at }).parent).toBe("loop:l");
  const made = inserted(document, { kind: "component", component: "a.b" }, { canvas, model, catalogue, at });
  const entry = flat(entries(made.graph.walks!["w"]!)).find((one) => one.id === made.id);
  expect(entry?.parent?.id).toBe("loop:l");
  expect(made.graph.nodes?.[entry!.node]?.component).toBe("a.b");
  expect(canvasLayout(made.graph, canvas).at?.[made.id]).toBeDefined();
  const again = inserted(document, { kind: "node", node: "a" }, { canvas, model, catalogue, at: [-500, -500] });
  expect(Object.keys(again.graph.nodes ?? {})).toEqual(["a", "b", "c"]);
  expect(again.graph.walks!["w"]!.body).toHaveLength(5);
});

test("the inputs and outputs of a Walk make room for what is put on them", () => {
  const document = { name: "g", walks: { w: { body: [] } } } as unknown as GraphDocument;
  const model = modelOf(document);
  const [inputs, outputs] = [model.boxes.get("@in") as Rect, model.boxes.get("@out") as Rect];
  expect(outputs.x - inputs.x - inputs.w).toBeGreaterThan(240);
  for (const [border, kept] of [
    ["@in", "@out"],
    ["@out", "@in"],
  ] as const) {
    const under = model.boxes.get(border) as Rect;
    const at: Point = [under.x, under.y];
    const made = inserted(document, { kind: "component", component: "a.b" }, { canvas, model, catalogue, at });
    const after = modelOf(made.graph);
    const added = after.boxes.get(made.id) as Rect;
    expect(after.boxes.get(kept)).toEqual(model.boxes.get(kept));
    const [left, right] = [after.boxes.get("@in") as Rect, after.boxes.get("@out") as Rect];
    expect(left.x + left.w).toBeLessThan(added.x - 40);
    expect(right.x).toBeGreaterThan(added.x + added.w + 40);
  }
});

test("lines up and spreads", () => {
  const boxes = new Map<string, Rect>([
    ["a", { x: 0, y: 0, w: 10, h: 10 }],
    ["b", { x: 5, y: 50, w: 20, h: 10 }],
    ["c", { x: 90, y: 90, w: 10, h: 10 }],
  ]);
  expect([...aligned(boxes, "right").values()]).toEqual([
    [90, 0],
    [80, 50],
    [90, 90],
  ]);
  expect([...distributed(boxes, "x").entries()]).toEqual([
    ["a", [0, 0]],
    ["b", [40, 50]],
    ["c", [90, 90]],
  ]);
});

function leaf(id: string, order: number, parent: string | null = null): Piece {
  const data = { kind: "note", text: "", color: "", note: id } as const;
  return { id, parent, order, data, size: [100, 60], below: 0, pad: null, label: id };
}

test("what a piece shows below it has room in every layout, and in its container", () => {
  const pad = { top: 10, right: 10, bottom: 10, left: 10 };
  const box: Piece = { ...leaf("box", 0), pad };
  const pieces = [box, { ...leaf("a", 0, "box"), below: 112 }, leaf("b", 1, "box"), leaf("c", 1)];
  const wires = [
    ["a", "b"],
    ["a", "c"],
  ] as const;
  const places = layered(pieces, { wires, after: [] });
  const boxes = boxesOf(pieces, places);
  const [a, holder] = [boxes.get("a")!, boxes.get("box")!];
  expect(a.h).toBe(60);
  expect(holder.y + holder.h).toBeGreaterThanOrEqual(a.y + 60 + 112 + pad.bottom);
  const column = [{ ...leaf("a", 0), below: 112 }, leaf("b", 0)];
  const stacked = layered(column, { wires: [], after: [] });
  const [first, second] = [stacked.get("a")![1], stacked.get("b")![1]].sort((x, y) => x - y);
  expect(second! - first!).toBeGreaterThanOrEqual(60 + 112);
  const free = arranged(column, { wires: [], after: [] }, { a: [0, 0] }).places.get("b")!;
  expect(free[1]).toBeGreaterThanOrEqual(60 + 112);
});

test("columns follow the flow; what has no place yet gets a free one beside what feeds it", () => {
  const pieces = [leaf("a", 0), leaf("b", 1), leaf("c", 2)];
  const wires = [
    ["a", "b"],
    ["b", "c"],
  ] as const;
  const links = { wires, after: [] };
  const places = layered(pieces, links);
  expect(places.get("b")![0]).toBeGreaterThan(places.get("a")![0] + 100);
  expect(places.get("c")![0]).toBeGreaterThan(places.get("b")![0] + 100);
  const some = arranged(pieces, links, { a: [0, 0], c: [172, 0] });
  expect(some.placed).toBe(false);
  expect(some.places.get("a")).toEqual([0, 0]);
  expect(some.places.get("c")).toEqual([172, 0]);
  const [x, y] = some.places.get("b")!;
  expect(x).toBe(172);
  expect(y).toBeGreaterThanOrEqual(60);
});

test("a wire's ways begin and end at its ports", () => {
  const ends = { sx: 0, sy: 0, tx: 200, ty: 80 };
  expect(forward(ends, [], "curved").path).toMatch(/^M0,0C.* 200,80$/);
  expect(forward(ends, [[50, 50]], "straight").path).toBe("M0,0L50,50L200,80");
  expect(back(ends, 300, 1).path).toMatch(/^M0,0H.*H200$/);
  expect(slotFor(ends, [[100, 200]], [40, 90])).toBe(0);
  expect(slotFor(ends, [[100, 200]], [160, 130])).toBe(1);
});

test("a hanging wire is offered what takes it, at the port that does", () => {
  const all = offers(graph(), catalogue, canvas, { ref: "x.y", end: "source", type: "image" });
  expect(all.map((offer) => [offer.title, offer.port?.name])).toEqual([["c.d", "p0"]]);
  const back = offers(graph(), catalogue, canvas, { ref: "x.y", end: "target", type: "tokens: int[n]" });
  expect(back.map((offer) => offer.title)).toEqual(["a", "b", "c", "a.b"]);
  const two = { ...component("two", ["latents", "latents"], []), name: "two" };
  two.inputs = two.inputs.map((one) => ({ ...one, optional: one.name === "p0" }));
  const port = (ref: string) =>
    offers({ name: "g" } as GraphDocument, { two }, canvas, { ref, end: "source", type: "latents" })[0]?.port?.name;
  expect([port("x.p0"), port("x.p1"), port("x.other")]).toEqual(["p0", "p1", "p1"]);
  const whole = offers(graph(), catalogue, canvas, null);
  expect(found(whole, "lop")[0]?.title).toBe("loop");
  expect(offers(graph(), catalogue, { kind: "components" }, null).some((offer) => offer.title === "loop")).toBe(
    false,
  );
});

test("keys are told apart", () => {
  const press = { key: "V", ctrlKey: true, metaKey: false, shiftKey: true };
  expect(keyOf(press)).toBe("mod+shift+v");
  expect(keyOf({ ...press, key: "+", ctrlKey: false })).toBe("+");
});

test("outputs stand to the right of all, even in a Walk that does nothing yet", () => {
  const document = { name: "g", walks: { w: { body: [] } } } as GraphDocument;
  const { boxes } = modelOf(document);
  const [inputs, outputs] = [boxes.get("@in") as Rect, boxes.get("@out") as Rect];
  expect(outputs.x).toBeGreaterThan(inputs.x + inputs.w);
});

test("a box is in sight when enough of it is", () => {
  const view = { x: -100, y: 0, zoom: 0.5 };
  const rect = (x: number): Rect => ({ x, y: 100, w: 200, h: 80 });
  expect(inSight(rect(200), view, [800, 600])).toBe(true);
  expect(inSight(rect(40), view, [800, 600])).toBe(false);
  expect(inSight(rect(60), view, [800, 600])).toBe(true);
  expect(inSight(rect(1780), view, [800, 600])).toBe(false);
  expect(inSight({ x: -500, y: -500, w: 9000, h: 9000 }, view, [800, 600])).toBe(true);
});
