import { describe, expect, it } from "vitest";
import {
  inOrder,
  isFed,
  keyOfCall,
  lexical,
  locateCall,
  locateSource,
  nameOfCall,
  nextOf,
  pausedWords,
  placeOfCall,
  stateWords,
} from "../../src/debug/model/calls";
import { call, GRAPH } from "./fixtures";

describe("held calls", () => {
  it("stand by rank, step and iteration, as the service takes the first", () => {
    const late = call({ iteration: [2] });
    const early = call({ iteration: [1, 9] });
    const second = call({ rank: 1 });
    const after = call({ step: 1 });
    expect(inOrder([second, after, late, early])).toEqual([early, late, after, second]);
  });

  it("sort as a naive comparison of padded iterations does", () => {
    const all = [[], [0], [0, 0], [0, 10], [1], [10], [2, 3]];
    const padded = (iteration: number[]) => iteration.map((index) => String(index + 1).padStart(4, "0")).join("");
    const naive = [...all].sort((a, b) => (padded(a) < padded(b) ? -1 : 1));
    expect([...all].reverse().sort(lexical)).toEqual(naive);
  });

  it("have keys that tell every one of them apart", () => {
    const calls = [
      call(),
      call({ rank: 1 }),
      call({ use: "next" }),
      call({ step: 1 }),
      call({ iteration: [1] }),
      call({ iteration: [1, 1] }),
      call({ iteration: [11] }),
      call({ use: "", loop: "llm" }),
    ];
    expect(new Set(calls.map(keyOfCall)).size).toBe(calls.length);
  });

  it("are named as what is called", () => {
    expect(nameOfCall(call())).toBe("`llm`");
    expect(nameOfCall(call({ use: "next" }))).toBe("`next` (llm)");
    expect(nameOfCall(call({ use: "words", node: "", loop: "words" }))).toBe("the loop `words`");
    expect(nameOfCall(call({ use: "fork:main>copy", node: "" }))).toBe("the fork of `main` into `copy`");
    expect(nameOfCall(call({ use: "export:main", node: "" }))).toBe("sending the state `main` to another rank");
    expect(nameOfCall(call({ use: "import:main", node: "" }))).toBe("taking the state `main` from another rank");
  });

  it("count from 1 in words", () => {
    expect(placeOfCall(call({ step: 1, iteration: [2, 0], rank: 3 }))).toBe(
      "Walk decode, step 2, iteration 3 · 1, rank 3",
    );
    expect(placeOfCall(call(), false)).toBe("Walk decode, step 1");
  });

  it("say what comes first and how many more there are", () => {
    expect(pausedWords(null, 0)).toContain("finishing the calls");
    expect(pausedWords(call(), 1)).toBe("before `llm` and 1 more");
    expect(pausedWords(call({ loop: "words" }), 0)).toBe("in the loop `words`");
  });

  it("go on with the breakpoint's call, else with a single one before a whole loop", () => {
    const loop = call({ loop: "words" });
    const [first, second] = [call({ iteration: [1] }), call({ use: "vae", node: "vae", rank: 1 })];
    expect(nextOf([second, first, loop], { walk: "decode", use: "vae" })).toBe(second);
    expect(nextOf([second, first, loop], { walk: "other", use: "vae" })).toBe(first);
    expect(nextOf([second, first, loop], null)).toBe(first);
    expect(nextOf([loop], { walk: "decode", use: "llm" })).toBe(loop);
    expect(nextOf([], null)).toBeNull();
  });
});

describe("what goes in", () => {
  it("is told of uses, of loops by what they hold, and not of other graphs", () => {
    expect(isFed(GRAPH, call({ use: "vae" }))).toBe(true);
    expect(isFed(GRAPH, call({ use: "next", loop: "words" }))).toBe(true);
    expect(isFed(GRAPH, call({ use: "fork:main>copy", node: "" }))).toBe(false);
    expect(isFed(GRAPH, call({ walk: "gone" }))).toBeNull();
  });

  it("of states is what they hold", () => {
    expect(stateWords({ dtype: "cache", shape: [1, 5, 1] })).toBe("5 tokens on 1 page");
    expect(stateWords({ dtype: "cache", shape: [4, 20, 8] })).toBe("4 sequences of up to 20 tokens on 8 pages");
    expect(stateWords({ dtype: "absent", shape: [] })).toBe("holds no call yet");
    expect(stateWords({ dtype: "float32", shape: [2] })).toBeNull();
  });
});

describe("places in the graph", () => {
  it("of a call are its use, its loop, or its node", () => {
    const walk = { kind: "walk", walk: "decode", inside: null };
    expect(locateCall(GRAPH, call({ use: "next" }))).toEqual({
      tab: "graph",
      canvas: walk,
      selection: ["use:next"],
    });
    expect(locateCall(GRAPH, call({ use: "words", node: "", loop: "words" }))?.selection).toEqual(["loop:words"]);
    expect(locateCall(GRAPH, call({ walk: "gone", node: "vae" }))).toEqual({
      tab: "graph",
      canvas: { kind: "components" },
      selection: ["node:vae"],
    });
    expect(locateCall(GRAPH, call({ walk: "gone", node: "gone" }))).toBeNull();
    for (const use of ["fork:main>copy", "export:main", "import:copy"])
      expect(locateCall(GRAPH, call({ use, node: "" }))?.selection).toEqual(["fork:0"]);
    expect(locateCall(GRAPH, call({ use: "fork:copy>main", node: "" }))).toBeNull();
  });

  it("of a source are all its edges, else what makes it", () => {
    expect(locateSource(GRAPH, "decode", "next.token")?.selection).toEqual(["edge:2", "edge:3", "edge:4"]);
    expect(locateSource(GRAPH, "decode", "@in.tokens")?.selection).toEqual(["edge:0"]);
    expect(locateSource(GRAPH, "decode", "last.token")?.selection).toEqual(["use:last"]);
    expect(locateSource(GRAPH, "decode", "@in.other")?.selection).toEqual(["@in"]);
    expect(locateSource(GRAPH, "decode", "gone.x")).toBeNull();
    expect(locateSource(GRAPH, "gone", "llm.token")).toBeNull();
  });
});
