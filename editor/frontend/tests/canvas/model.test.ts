import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { Catalogue, Component, Problem } from "../../src/messages/answers";
import { groupsOf } from "../../src/canvas/gestures/tidy";
import { overlap, useSize } from "../../src/canvas/shapes/geometry";
import { drawn, ModelMaker, type ModelInput } from "../../src/canvas/model/model";
import { PREVIEW_ROOM } from "../../src/canvas/model/previews";
import type { Model, Rect, UseData } from "../../src/canvas/shapes/types";
import { place, setClosed } from "../../src/document/edits";
import { factsOf } from "../../src/document/routes";
import { entries, flat, isContainer } from "../../src/document/tree";
import { union } from "../../src/document/union";
import type { GraphDocument } from "../../src/document/types";
import { portsCatalogue } from "./catalogue";

const GRAPHS = new URL("../../../../graphs/", import.meta.url);
const graphs = readdirSync(GRAPHS)
  .filter((file) => file.endsWith(".json"))
  .map((file) => JSON.parse(readFileSync(new URL(file, GRAPHS), "utf8")) as GraphDocument);
const walks = graphs.flatMap((graph) =>
  Object.keys(graph.walks ?? {}).map((walk) => [graph.name, walk, graph] as const),
);

function input(graph: GraphDocument, walk: string | null, more: Partial<ModelInput> = {}): ModelInput {
  const canvas = walk === null ? ({ kind: "components" } as const) : ({ kind: "walk", walk, inside: null } as const);
  return { graph, canvas, catalogue: portsCatalogue(graph), problems: [], lit: null, ranks: new Map(), ...more };
}

function made(graph: GraphDocument, walk: string | null, more: Partial<ModelInput> = {}): Model {
  return new ModelMaker().make(input(graph, walk, more));
}

test("there are graphs to draw", () => expect(graphs.length).toBeGreaterThan(5));

describe.each(walks)("%s / %s", (_, walk, graph) => {
  const model = made(graph, walk);
  const body = graph.walks![walk]!;
  const all = flat(entries(body));

  test("every item is drawn once, inside what holds it", () => {
    const items = model.nodes.filter((node) => ["use", "container", "fork"].includes(node.data.kind));
    expect(items.map((node) => node.id).sort()).toEqual(all.map((entry) => entry.id).sort());
    for (const entry of all)
      expect(items.find((node) => node.id === entry.id)?.parentId ?? null).toBe(entry.parent?.id ?? null);
  });

  test("every edge and result is drawn once, between ports that are there", () => {
    const edges = model.edges.filter((edge) => edge.id.startsWith("edge:"));
    expect(edges.map((edge) => edge.id)).toEqual((body.edges ?? []).map((_link, index) => `edge:${index}`));
    const results = model.edges.filter((edge) => edge.id.startsWith("result:"));
    expect(results.map((edge) => edge.id)).toEqual(Object.keys(body.results ?? {}).map((name) => `result:${name}`));
    for (const edge of model.edges) {
      const source = model.nodes.find((node) => node.id === edge.source)!;
      const target = model.nodes.find((node) => node.id === edge.target)!;
      expect(source.handles?.some((one) => one.type === "source" && one.id === edge.sourceHandle)).toBe(true);
      expect(target.handles?.some((one) => one.type === "target" && one.id === edge.targetHandle)).toBe(true);
    }
  });

  test("no wire of a sound graph is called broken", () => {
    expect(model.edges.filter((edge) => edge.data?.broken).map((edge) => [edge.id, edge.data?.broken])).toEqual([]);
  });

  test("carried edges are those that the routes say, and run along their loop", () => {
    for (const route of factsOf(body).routes) {
      const edge = model.edges.find((one) => one.id === `edge:${route.index}`)!;
      expect(edge.data?.carried).toBe(route.carried);
      if (route.carried) expect(edge.data?.around).toBe(`loop:${route.target.entry!.loops[route.common - 1]}`);
    }
  });

  test("nothing overlaps that isn't nested, and containers hold their children", () => {
    expectSound(model);
  });
});

function expectSound(model: Model): void {
  const parents = new Map(model.nodes.map((node) => [node.id, node.parentId ?? null]));
  for (const a of model.nodes) {
    const box = model.boxes.get(a.id) as Rect;
    const holder = a.parentId ? (model.boxes.get(a.parentId) as Rect) : null;
    if (holder) {
      expect(box.x).toBeGreaterThanOrEqual(holder.x);
      expect(box.y).toBeGreaterThanOrEqual(holder.y + 30);
      expect(box.x + box.w).toBeLessThanOrEqual(holder.x + holder.w);
      expect(box.y + box.h).toBeLessThanOrEqual(holder.y + holder.h);
    }
    for (const b of model.nodes)
      if (a.id < b.id && parents.get(a.id) === parents.get(b.id))
        expect([a.id, b.id, overlap(box, model.boxes.get(b.id) as Rect)]).toEqual([a.id, b.id, false]);
  }
}

describe.each(graphs.map((graph) => [graph.name, graph] as const))("components of %s", (_, graph) => {
  const model = made(graph, null);

  test("every node, edge and stream is there", () => {
    const whole = union(graph);
    expect(model.nodes.map((node) => node.id)).toEqual(whole.nodes.map((node) => `node:${node}`));
    expect(model.edges.filter((edge) => edge.data?.kind === "wire")).toHaveLength(whole.edges.length);
    const streams = new Set(model.edges.flatMap((edge) => (edge.data?.kind === "stream" ? [edge.data.index] : [])));
    expect(streams.size).toBe(graph.streams?.length ?? 0);
  });

  test("nothing overlaps", () => expectSound(model));
});

const shapes = graphs.find((graph) => graph.name === "shapes")!;

function with_(graph: GraphDocument, walk: string, change: (body: Record<string, unknown>) => void): GraphDocument {
  const copy = structuredClone(graph);
  change(copy.walks![walk] as unknown as Record<string, unknown>);
  return copy;
}

describe("what is wrong stays in sight", () => {
  test("an edge of a use that isn't there ends at a ghost, with the reason", () => {
    const graph = with_(shapes, "decode", (body) => (body["edges"] as unknown[]).push(["nobody.x", "llm.token"]));
    const model = made(graph, "decode");
    const edge = model.edges.find((one) => one.id === "edge:4")!;
    expect(edge.source).toBe("missing:nobody");
    expect(edge.data?.broken).toContain("nobody.x");
    expect(model.nodes.some((node) => node.id === "missing:nobody")).toBe(true);
  });

  test("a port that the component hasn't is drawn as a ghost", () => {
    const graph = with_(shapes, "decode", (body) =>
      (body["edges"] as unknown[]).push(["start.token", "llm.nothing"]),
    );
    const model = made(graph, "decode", { catalogue: portsCatalogue(shapes) });
    const llm = model.nodes.find((node) => node.id === "use:llm")!;
    expect(llm.data.kind === "use" && llm.data.inputs.find((port) => port.ghost)?.name).toBe("nothing");
    expect(model.edges.find((one) => one.id === "edge:4")?.data?.broken).toContain("nothing");
  });

  test("an unknown component keeps the ports that edges name", () => {
    const graph = structuredClone(shapes);
    graph.nodes!["llm"]!.component = "gone.away";
    const model = made(graph, "decode", { catalogue: portsCatalogue(shapes) });
    const llm = model.nodes.find((node) => node.id === "use:llm")!;
    expect(llm.data.kind === "use" && llm.data.ghost).toBe(true);
    expect(llm.data.kind === "use" && llm.data.inputs.map((port) => port.name)).toEqual(["token"]);
    expect(model.edges.filter((edge) => edge.id.startsWith("edge:"))).toHaveLength(4);
  });

  test("types that don't fit are broken", () => {
    const catalogue = structuredClone(portsCatalogue(shapes)) as Record<string, Catalogue[string]>;
    const start = catalogue["text.start"]!;
    const backbone = catalogue["bagel.backbone"]!;
    const typed = (ports: typeof start.inputs, type: string) => ports.map((port) => ({ ...port, type }));
    catalogue["text.start"] = { ...start, outputs: typed(start.outputs, "image") };
    catalogue["bagel.backbone"] = { ...backbone, inputs: typed(backbone.inputs, "tokens") };
    const model = made(shapes, "decode", { catalogue });
    expect(model.edges.find((one) => one.id === "edge:0")?.data?.broken).toContain("image");
  });

  test("problems stand at the deepest thing that they name", () => {
    const at = (pointer: string): Problem => ({ code: "x", pointer, message: pointer, severity: "error" });
    const problems = [
      at("/walks/decode/body/1/body/0/when"),
      at("/walks/decode/body/1/times"),
      at("/walks/decode/edges/2/to"),
      at("/nodes/detokenizer/params/a"),
    ];
    const model = made(shapes, "decode", { problems });
    const told = model.nodes.flatMap((node) =>
      "problems" in node.data ? node.data.problems.map((problem) => `${node.id} ${problem.pointer}`) : [],
    );
    expect(told.sort()).toEqual([
      "loop:tokens /walks/decode/body/1/times",
      "use:detokenizer /nodes/detokenizer/params/a",
      "use:llm /walks/decode/body/1/body/0/when",
    ]);
    expect(model.edges.find((edge) => edge.id === "edge:2")?.data?.broken).toBe("/walks/decode/edges/2/to");
  });
});

describe("views", () => {
  test("a closed container hides what it holds and takes over its wires to the outside", () => {
    const canvas = { kind: "walk", walk: "image_gen_cfg", inside: null } as const;
    const graph = setClosed(shapes, canvas, "loop:denoise", true);
    const model = made(graph, "image_gen_cfg");
    expect(model.nodes.some((node) => node.parentId === "loop:denoise")).toBe(false);
    const loop = model.nodes.find((node) => node.id === "loop:denoise")!;
    expect(loop.data.kind === "container" && loop.data.inputs.map((port) => port.ref)).toEqual([
      "llm.latents",
      "llm_cfg_text.latents",
      "llm_cfg_img.latents",
      "combine_cfg.latents",
    ]);
    expect(model.edges.every((edge) => edge.source !== edge.target)).toBe(true);
    expect(model.edges.filter((edge) => edge.target === "loop:denoise")).toHaveLength(4);
    expectSound(model);
  });

  test("the inside of a container shows its items and what crosses its border", () => {
    const canvas = { kind: "walk", walk: "decode", inside: "loop:tokens" } as const;
    const model = made(shapes, "decode", { canvas });
    expect(model.nodes.map((node) => node.id).sort()).toEqual(["@after", "@before", "use:detokenizer", "use:llm"]);
    expect(model.edges.map((edge) => [edge.source, edge.target])).toEqual([
      ["@before", "use:llm"],
      ["use:llm", "use:llm"],
      ["use:llm", "use:detokenizer"],
      ["use:detokenizer", "@after"],
    ]);
  });

  test("a lit Walk numbers its way and dims the rest", () => {
    const model = made(shapes, null, { lit: "read_image" });
    const shown = Object.fromEntries(
      model.nodes.map((node) => [node.id, node.data.kind === "use" ? [node.data.badge, node.data.dim] : []]),
    );
    expect(shown["node:llm"]).toEqual(["3", false]);
    expect(shown["node:noise"]).toEqual(["", true]);
    expect(model.edges.filter((edge) => !edge.data?.dim).map((edge) => edge.data?.from)).toEqual([
      "picture_in.pixels",
      "vit_encoder.embeddings",
    ]);
  });

  test("the port that ends a loop is marked", () => {
    const llm = made(shapes, "decode").nodes.find((node) => node.id === "use:llm")!;
    expect(llm.data.kind === "use" && llm.data.outputs.filter((port) => port.mark === "until")).toHaveLength(1);
  });
});

describe("previews", () => {
  const typed = (type: string): Catalogue => {
    const catalogue = structuredClone(portsCatalogue(shapes)) as Record<string, Component>;
    for (const port of catalogue["media.picture_out"]!.outputs) port.type = type;
    return catalogue;
  };

  test("what sends a picture keeps room below it, in Walks, on Components and closed", () => {
    const catalogue = typed("image: bytes");
    const walk = { kind: "walk", walk: "image_gen_cfg", inside: null } as const;
    expect([...made(shapes, "image_gen_cfg", { catalogue }).below]).toEqual([
      ["use:preview_out", PREVIEW_ROOM],
      ["use:picture_out", PREVIEW_ROOM],
    ]);
    expect([...made(shapes, null, { catalogue }).below.keys()]).toEqual(["node:picture_out"]);
    const closed = setClosed(shapes, walk, "loop:denoise", true);
    expect(made(closed, "image_gen_cfg", { catalogue }).below.has("loop:denoise")).toBe(true);
    expect(made(shapes, "image_gen_cfg", { catalogue: typed("tensor") }).below.size).toBe(0);
  });

  test("in a new layout, nothing stands where they are shown", () => {
    const catalogue = typed("image: bytes");
    for (const walk of [...Object.keys(shapes.walks!), null]) {
      const { boxes, below, nodes } = made(shapes, walk, { catalogue });
      const parents = new Map(nodes.map((node) => [node.id, node.parentId]));
      for (const [id, room] of below) {
        const box = boxes.get(id)!;
        const shown = { ...box, y: box.y + box.h, h: room };
        const others = nodes.filter((node) => node.id !== id && node.parentId === parents.get(id));
        expect(others.filter((node) => overlap(shown, boxes.get(node.id)!)).map((node) => node.id)).toEqual([]);
      }
    }
  });

  test("a flag that comes to end a loop makes its node no wider", () => {
    const data = made(shapes, "decode").nodes.find((node) => node.id === "use:llm")!.data as UseData;
    const port = { ...data.outputs[0]!, name: "a_flag_with_a_long_name_of_its_own", type: "flag: bool" };
    const size = (mark: "until" | null) => useSize({ ...data, outputs: [{ ...port, mark }] });
    expect(size("until")).toEqual(size(null));
  });
});

describe("what of a selection is laid out", () => {
  const model = made(shapes, "image_gen_cfg");

  test("all, where one thing or nothing is selected", () => {
    expect(groupsOf(model, [])).toEqual([]);
    expect(groupsOf(model, ["use:noise"])).toEqual([]);
    expect(groupsOf(model, ["use:noise", "edge:0", "use:gone"])).toEqual([]);
    expect(groupsOf(model, ["use:noise", "use:llm"])).toEqual([]);
  });

  test("several in one container, and what a container holds", () => {
    expect(groupsOf(model, ["use:noise", "use:vae_decoder"])).toEqual([["use:noise", "use:vae_decoder"]]);
    const [all] = groupsOf(model, ["loop:denoise", "use:llm"]);
    expect(all).toContain("use:combine_cfg");
    expect(all?.filter((id) => id === "use:llm")).toHaveLength(1);
    const groups = groupsOf(model, ["use:noise", "use:vae_decoder", "use:llm", "use:llm_cfg_text"]);
    expect(groups.map((group) => group.length)).toEqual([2, 2]);
  });
});

describe("identity", () => {
  test("an edit of one thing keeps the other nodes and edges", () => {
    const maker = new ModelMaker();
    const first = maker.make(input(shapes, "image_gen_cfg"));
    const all = Object.fromEntries(first.places);
    const canvas = { kind: "walk", walk: "image_gen_cfg", inside: null } as const;
    const graph = place(shapes, canvas, all);
    const second = maker.make(input(graph, "image_gen_cfg", { catalogue: input(shapes, null).catalogue }));
    expect(second.nodes.every((node, index) => node === first.nodes[index])).toBe(true);
    const [x, y] = first.places.get("use:picture_out")!;
    const third = maker.make(input(place(graph, canvas, { "use:picture_out": [x + 80, y] }), "image_gen_cfg"));
    const changed = third.nodes.filter((node) => !second.nodes.includes(node)).map((node) => node.id);
    expect(changed).toEqual(["use:picture_out"]);
    expect(third.edges.every((edge, index) => edge === second.edges[index])).toBe(true);
  });

  test("of a thousand nodes each is made once", () => {
    const nodes = Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`n${index}`, { component: "a.b" }]));
    const body = Object.keys(nodes);
    const edges = body.slice(1).map((name, index) => [`n${index}.x`, `${name}.x`]);
    const graph = { name: "big", nodes, walks: { w: { body, edges } } } as unknown as GraphDocument;
    const { pieces, wires } = drawn(input(graph, "w"));
    expect([pieces.length, wires.length]).toEqual([1002, 999]);
  });
});

test("containers are known to be containers", () => {
  const kinds = walks.flatMap(([, walk, graph]) => flat(entries(graph.walks![walk]!)).map((entry) => entry.kind));
  expect(kinds.filter(isContainer).length).toBeGreaterThan(10);
});
