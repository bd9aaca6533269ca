import type { Row } from "../../src/debug/model/differences";
import type { GraphDocument } from "../../src/document/types";
import type { BreakShown, HeldCall, SampleEvent, Statistics } from "../../src/messages/frames";

export const GRAPH = {
  walkgraph: 1,
  name: "g",
  nodes: { llm: { component: "c.llm" }, vae: { component: "c.vae" } },
  walks: {
    decode: {
      inputs: { tokens: "tokens" },
      body: [
        "llm",
        { loop: "words", times: "8", body: [{ use: "llm", as: "next" }, { parallel: [["vae"]] }] },
        { use: "llm", as: "last" },
        { fork: "main", into: "copy" },
      ],
      edges: [
        ["@in.tokens", "llm.tokens"],
        ["llm.token", "next.tokens"],
        ["next.token", "next.tokens"],
        ["next.token", "vae.latents"],
        ["next.token", "last.tokens"],
      ],
    },
  },
} as unknown as GraphDocument;

export function call(fields: Partial<HeldCall> = {}): HeldCall {
  return { rank: 0, walk: "decode", use: "llm", node: "llm", step: 0, iteration: [], loop: "", ...fields };
}

export function breakpoint(fields: Partial<BreakShown> = {}): BreakShown {
  return {
    id: "b1",
    walk: "decode",
    use: "llm",
    iteration: null,
    run: null,
    expires_at: 2e9,
    inside: false,
    ...fields,
  };
}

export function statistics(fields: Partial<Statistics> = {}): Statistics {
  return { count: 4, nan: 0, infinite: 0, low: -1, high: 1, mean: 0, std: 0.5, histogram: [], every: 1, ...fields };
}

export function sample(fields: Partial<SampleEvent> = {}): SampleEvent {
  return {
    type: "sample",
    why: "record",
    tap: "",
    run: "r1",
    rank: 0,
    walk: "decode",
    step: 0,
    source: "llm.token",
    iteration: [],
    at: 1,
    modality: "tokens",
    dtype: "int64",
    shape: [1],
    statistics: null,
    preview: null,
    digest: "",
    picked: [],
    ...fields,
  };
}

export function row(fields: Partial<Row> = {}): Row {
  return {
    walk: "decode",
    source: "llm.token",
    step: 0,
    iteration: [],
    rank_a: 0,
    rank_b: 0,
    shape_a: [1],
    shape_b: [1],
    dtype_a: "float32",
    dtype_b: "float32",
    statistics_a: statistics(),
    statistics_b: statistics(),
    max_abs: 0.5,
    max_rel: 0.1,
    at_a: 1,
    at_b: 1,
    ...fields,
  };
}
