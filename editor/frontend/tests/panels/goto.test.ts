import { describe, expect, it } from "vitest";
import { readWanted, sought, targetsOf, type Command } from "../../src/panels/commands/goto";
import { grouped, together } from "../../src/panels/problems/problems";
import { catalogue } from "./components";
import { graph } from "./fixtures";

const bagel = graph("bagel");
const problem = {
  code: "bad_times",
  pointer: "/walks/decode/body/1/times",
  message: "`x` is bad",
  severity: "error",
} as const;
const warning = { code: "unused", pointer: "/nodes/llm", message: "never used", severity: "warning" } as const;
const undo: Command = { name: "Undo", blocked: null, run: () => undefined };
const look = (text: string, near: string | null = null) =>
  sought(text, {
    graph: bagel,
    catalogue,
    ranks: (node) => (node.startsWith("vae") ? [1] : [0]),
    targets: targetsOf(bagel, [problem]),
    commands: [undo],
    near,
  }).map((found) => (found.kind === "target" ? found.target.key : found.command.name));

describe("find anything", () => {
  it("goes to nodes, uses, Walks, tasks, states, problems and commands", () => {
    expect(look("image_gen_cfg")[0]).toBe("walk:image_gen_cfg");
    expect(look("edit")).toContain("task:edit");
    expect(look("cfg_img")).toContain("state:cfg_img");
    expect(look("x is bad")[0]).toBe("problem:0");
    expect(look("undo")[0]).toBe("Undo");
    expect(look("llm")).toEqual(expect.arrayContaining(["node:llm", "decode/use:llm", "read_text/use:llm"]));
  });

  it("prefers the whole, and what is in the open Walk", () => {
    expect(look("llm")[0]).toBe("node:llm");
    expect(look("llm", "decode")[0]).toBe("decode/use:llm");
  });

  it("filters by port type, kind and rank", () => {
    expect(readWanted("vae :latents @1")).toEqual({ words: "vae", types: ["latents"], ranks: [1] });
    const flags = look(":flag");
    expect(flags).toContain("node:llm");
    expect(flags).not.toContain("node:vae_decoder");
    expect(look(":loop").every((key) => key.includes("loop:"))).toBe(true);
    const first = look("@1");
    expect(first).toContain("node:vae_decoder");
    expect(first.every((key) => key.includes("vae"))).toBe(true);
    expect(first).not.toContain("Undo");
  });
});

describe("problems", () => {
  it("stand in groups by place, errors first", () => {
    const groups = grouped(bagel, [warning, problem], "");
    expect(groups.map((group) => group.place)).toEqual(["Walk decode", "Component llm"]);
    expect(groups[0]!.shown[0]!.at.selection).toEqual(["loop:tokens"]);
  });

  it("are filtered by all words, of the place too", () => {
    expect(grouped(bagel, [warning, problem], "decode bad")).toHaveLength(1);
    expect(grouped(bagel, [warning, problem], "decode unused")).toHaveLength(0);
  });

  it("of the plan are told once", () => {
    const ofPlan = (one: typeof problem | typeof warning) => ({ ...one, pointer: `/graph${one.pointer}` });
    expect(together([problem], [ofPlan(problem), ofPlan(warning)])).toEqual([problem, warning]);
    const room = { code: "no_room", pointer: "/placement/groups/0", message: "too much", severity: "error" } as const;
    expect(together([problem], [room])).toEqual([problem, room]);
  });
});
