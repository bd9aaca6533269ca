import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { boxesOf, overlap } from "../../src/canvas/shapes/geometry";
import { elkLayout } from "../../src/canvas/layout/elk";
import { drawn, ModelMaker } from "../../src/canvas/model/model";
import type { GraphDocument } from "../../src/document/types";
import { portsCatalogue } from "./catalogue";

const GRAPH = JSON.parse(
  readFileSync(new URL("../../../../graphs/shapes.json", import.meta.url), "utf8"),
) as GraphDocument;

test("what is laid out anew has room for previews, and for containers with long rules", async () => {
  const graph = structuredClone(GRAPH);
  const loop = graph.walks!["decode"]!.body[1] as { times: string; body: unknown[] };
  loop.times = "max_tokens + max_tokens + max_tokens";
  loop.body.pop();
  graph.walks!["decode"]!.body.push("detokenizer");
  const catalogue = structuredClone(portsCatalogue(GRAPH));
  for (const port of catalogue["text.detokenizer"]!.outputs) port.type = "text: str";
  const canvas = { kind: "walk", walk: "decode", inside: null } as const;
  const input = { graph, canvas, catalogue, problems: [], lit: null, ranks: new Map<string, number[]>() };
  const model = new ModelMaker().make(input);
  const places = await elkLayout(model, canvas, null);
  const boxes = boxesOf(drawn(input).pieces, new Map([...model.places, ...places]));
  const roots = model.nodes.filter((node) => !node.parentId);
  const room = (id: string) => {
    const box = boxes.get(id)!;
    return { ...box, h: box.h + (model.below.get(id) ?? 0) };
  };
  expect(model.below.has("use:detokenizer")).toBe(true);
  for (const a of roots)
    for (const b of roots)
      if (a.id < b.id) expect([a.id, b.id, overlap(room(a.id), room(b.id))]).toEqual([a.id, b.id, false]);
});
