import { describe, expect, it } from "vitest";
import { surplus, MemoryHistory, type Entry, type Head } from "../../src/play/runs/history";
import { begun } from "../../src/play/model/results";
import { textDiff } from "../../src/play/model/textdiff";
import type { Given } from "../../src/play/model/types";
import { adviceFor, differing, placeOf, saidOf, whyNothing } from "../../src/play/model/words";

const GIVEN: Given = { parts: [], ordered: false, params: {}, seed: { text: "", locked: false } };

describe("runs in words", () => {
  it("tells where an error was and what to do", () => {
    const error = { code: "node_error", message: "m", node: "llm", walk: "decode", iteration: [2, 0], rank: 0 };
    expect(placeOf(error)).toBe("node llm, Walk decode, iteration 3 · 1, rank 0");
    expect(placeOf({ code: "x", message: "m" })).toBe("");
    expect(adviceFor({ code: "overloaded", message: "m" })).toMatch(/run again/);
    expect(adviceFor({ code: "new_code", message: "m", retryable: true })).toMatch(/again/);
  });

  it("tells why nothing is shown of a run that is done", () => {
    expect(whyNothing({ outputs: [] }, {})).toContain("has no outputs");
    expect(whyNothing({ outputs: ["sum"] }, { lost: true })).toContain("no longer kept");
    expect(whyNothing({ outputs: ["sum"] }, {})).toContain("sent no outputs");
    expect(whyNothing(null, {})).not.toContain("no longer kept");
  });

  it("tells what went in", () => {
    const part = (text: string, media: Given["parts"][number]["media"] = null) => ({
      key: "",
      input: "",
      modality: "",
      text,
      media,
    });
    const parts = [part(" a circle "), part(""), part("", { mime: "", data: "", name: "cat.png" })];
    expect(saidOf({ ...GIVEN, parts })).toBe("a circle · cat.png");
  });

  it("tells only what two runs were asked differently", () => {
    const run = (seed: number, params: Given["params"]) => ({
      given: { ...GIVEN, params },
      result: { ...begun("d", "t", 0), seed },
    });
    expect(differing(run(1, { steps: 20, scale: 2 }), run(2, { scale: 2 }))).toEqual([
      { name: "steps", left: "20", right: "default" },
      { name: "seed", left: "1", right: "2" },
    ]);
  });
});

describe("two texts", () => {
  const sides = (left: string, right: string) => {
    const pieces = textDiff(left, right);
    const side = (other: "left" | "right") =>
      pieces
        .filter((piece) => piece.kind !== other)
        .map((piece) => piece.text)
        .join("");
    expect([side("right"), side("left")]).toEqual([left, right]);
    return pieces;
  };

  it("are told apart word by word", () => {
    expect(sides("a large red circle here", "a small red circle there")).toEqual([
      { kind: "same", text: "a " },
      { kind: "left", text: "large " },
      { kind: "right", text: "small " },
      { kind: "same", text: "red circle " },
      { kind: "left", text: "here" },
      { kind: "right", text: "there" },
    ]);
  });

  it("are whole on either side, whatever they are", () => {
    for (const [left, right] of [
      ["", ""],
      ["", "a"],
      ["a b", ""],
      ["a  b\n c", "a b\nc "],
      ["x x x", "x"],
      ["same", "same"],
    ] as const)
      sides(left, right);
    expect(sides("same text", "same text")).toEqual([{ kind: "same", text: "same text" }]);
    const long = (word: string) => Array.from({ length: 3000 }, (_, index) => `${word}${index}`).join(" ");
    expect(sides(long("a"), long("b"))).toHaveLength(2);
  });
});

describe("the history", () => {
  const head = (id: string, at: number, size = 10): Head => ({
    id,
    at,
    size,
    deployment: "d",
    task: "t",
    state: "done",
    seed: 1,
    seconds: 1,
    thumb: null,
    said: "",
    wrote: "",
  });
  const entry = (found: Head): Entry => ({ head: found, given: GIVEN, result: begun("d", "t", found.at) });

  it("lets the oldest go, by number and by size", () => {
    const heads = [head("c", 3), head("b", 2), head("a", 1)];
    expect(surplus(heads, 2, 100)).toEqual(["a"]);
    expect(surplus(heads, 10, 25)).toEqual(["a"]);
    expect(surplus(heads, 10, 30)).toEqual([]);
  });

  it("in memory lists the newest first, gives and forgets", async () => {
    const kept = new MemoryHistory();
    for (const [id, at] of [
      ["a", 1],
      ["b", 2],
    ] as const)
      await kept.put(entry(head(id, at)));
    expect((await kept.list()).map((found) => found.id)).toEqual(["b", "a"]);
    expect((await kept.get("a"))?.result.startedAt).toBe(1);
    await kept.remove(["a"]);
    expect(await kept.get("a")).toBeNull();
  });
});
