// A stream from the canvas: made by a wire to its port, put into a Walk that reads it, taken out again.
import { describe, expect, test } from "vitest";
import { connected, newStreamPlaced } from "../../src/canvas/gestures/connect";
import { inserted } from "../../src/canvas/gestures/insert";
import { ModelMaker } from "../../src/canvas/model/model";
import { offers } from "../../src/canvas/quick/quick";
import { EditRefused } from "../../src/document/edits/parts/records";
import { canvasLayout } from "../../src/document/edits/parts/layout";
import { leaveStream, removeStream, renameStream } from "../../src/document/edits/streams";
import type { Catalogue } from "../../src/messages/answers";
import type { GraphDocument } from "../../src/document/types";
import type { Canvas } from "../../src/store/types";
import { portsCatalogue } from "./catalogue";

const drawn: GraphDocument = {
  name: "g",
  nodes: { item: { component: "x.item" }, sum: { component: "x.sum" } },
  walks: {
    make: { body: ["item"], edges: [["item.items", "@out.items"]] },
    take: { body: ["sum"], edges: [["sum.sum", "@out.sum"]] },
  },
  tasks: {},
};
const port = (name: string, type: string) => ({ name, type, optional: true, description: "" });
const catalogue: Catalogue = structuredClone(portsCatalogue(drawn));
catalogue["x.item"]!.outputs = [port("items", "tensor: float[1]")];
catalogue["x.sum"]!.inputs = [port("items", "tensor: float[n]"), port("words", "text")];

const walk = (name: string, inside: string | null = null): Canvas => ({ kind: "walk", walk: name, inside });
const model = (graph: GraphDocument, canvas: Canvas) =>
  new ModelMaker().make({ graph, canvas, catalogue, problems: [], lit: null, ranks: new Map() });
const streaming = connected(drawn, "make", "item.items", "@sink.+", catalogue);

describe("a stream on the canvas", () => {
  test("is made by a wire to its port, item by item at first", () => {
    expect(streaming.streams).toEqual([
      { name: "items", from: "item.items", walks: ["make"], chunks: { policy: "fixed", size: 1 } },
    ]);
    const twice = connected(streaming, "make", "item.items", "@sink.+", catalogue);
    expect(twice.streams!.map((stream) => stream.name)).toEqual(["items", "items_2"]);
    expect(() => connected(drawn, "make", "@in.x", "@sink.+", catalogue)).toThrow(EditRefused);
  });

  test("ends below what leaves the Walk already, one below the other", () => {
    const first = newStreamPlaced(streaming, walk("make"), model(drawn, walk("make")));
    const twice = connected(first, "make", "item.items", "@sink.+", catalogue);
    const made = model(newStreamPlaced(twice, walk("make"), model(first, walk("make"))), walk("make"));
    const [out, one, two] = ["@out", "stream:items", "stream:items_2"].map((id) => made.boxes.get(id)!);
    expect(one!.y).toBeGreaterThan(out!.y + out!.h);
    expect(two!.y).toBeGreaterThan(one!.y + one!.h);
    expect([one!.x, two!.x].every((x) => Math.abs(x - out!.x) < 12)).toBe(true);
    const places = (graph: GraphDocument) => Object.keys(canvasLayout(graph, walk("make")).at ?? {});
    expect(places(renameStream(first, "items", "x"))).toContain("stream:x");
    expect(places(removeStream(first, "items"))).not.toContain("stream:items");
  });

  test("is offered to the Walks that don't feed it, where its items fit", () => {
    const names = (name: string, type?: string) =>
      offers(streaming, catalogue, walk(name), type ? { ref: "sum.x", end: "target", type } : null)
        .filter((offer) => offer.payload.kind === "stream")
        .map((offer) => offer.title);
    expect(names("take")).toEqual(["items"]);
    expect(names("make")).toEqual([]);
    expect(names("take", "tensor: float[n]")).toEqual(["items"]);
    expect(names("take", "text")).toEqual([]);
  });

  test("stands in a Walk from when it was put there, read or not, until it is taken out", () => {
    const canvas = walk("take");
    const where = { canvas, model: model(streaming, canvas), catalogue, at: [40, 40] as [number, number] };
    const put = inserted(streaming, { kind: "stream", stream: "items" }, where);
    expect(put.id).toBe("@stream.items");
    expect(model(put.graph, canvas).nodes.find((node) => node.id === put.id)?.position).toEqual({ x: 40, y: 40 });
    const read = connected(put.graph, "take", "@stream.items", "sum.items", catalogue);
    expect(model(read, canvas).edges.map((edge) => edge.ariaLabel)).toContain("@stream.items to sum.items");
    const left = leaveStream(read, "take", "items");
    expect(model(left, canvas).nodes.map((node) => node.id)).not.toContain(put.id);
    expect(left.walks!["take"]!.edges).toEqual(drawn.walks!["take"]!.edges);
    expect(left.streams).toEqual(streaming.streams);
    expect(() =>
      inserted(streaming, { kind: "stream", stream: "items" }, { ...where, canvas: walk("take", "loop:x") }),
    ).toThrow(/leave the container/);
  });
});
