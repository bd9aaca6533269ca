import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { diff } from "../../src/document/diff";
import { parse } from "../../src/document/json";
import type { GraphDocument } from "../../src/document/types";
import { brief, counts, fieldChanges, groups, headline } from "../../src/versions/changes";
import { shownBy } from "../../src/versions/showing";

const file = join(__dirname, "../../../../graphs/bagel.json");
const before = parse(readFileSync(file, "utf8")).value as GraphDocument;
const after = structuredClone(before);
after.nodes!["judge"] = { component: "text.tokenizer" };
delete after.nodes!["start"];
after.walks!["decode"]!.edges!.push(["llm.token", "@out.tokens"]);
after.walks!["decode"]!.label = "Say";
after.tasks!["edit"]!.params!["steps"]!.default = 30;
after.description = "Another.";
const differences = diff(before, after);

describe("differences of two graphs", () => {
  test("stand in groups: components, then Walk by Walk, tasks, the graph itself", () => {
    expect(groups(differences).map((group) => group.title)).toEqual([
      "Components",
      "Walks",
      "Walk decode",
      "Tasks",
      "The graph",
    ]);
    expect(groups(differences).flatMap((group) => group.differences).length).toBe(differences.length);
  });

  test("are counted by kind", () => {
    expect(counts(differences)).toEqual({ added: 2, removed: 1, changed: 3 });
  });

  test("a change lists its fields, what is new or gone only says so", () => {
    const task = differences.find((difference) => difference.what === "task")!;
    expect(headline(task)).toEqual({ text: "Task `edit`", listed: true });
    expect(fieldChanges(task.before, task.after)).toEqual([{ path: "params.steps.default", before: 50, after: 30 }]);
    const node = differences.find((difference) => difference.name === "judge")!;
    expect(headline(node).listed).toBe(false);
  });

  test("are shown where the open graph has them", () => {
    const of = (title: string) => groups(differences).find((group) => group.title === title)!.differences;
    expect(shownBy(after, of("Components"))).toEqual({ canvas: { kind: "components" }, selection: ["node:judge"] });
    const edge = after.walks!["decode"]!.edges!.length - 1;
    const canvas = { kind: "walk", walk: "decode", inside: null };
    expect(shownBy(after, of("Walk decode"))).toEqual({ canvas, selection: [`edge:${edge}`] });
    expect(shownBy(after, of("Tasks"))).toBeNull();
    expect(shownBy({ ...after, walks: {} }, of("Walk decode"))).toBeNull();
  });

  test("what is gone selects nothing that stands in its place", () => {
    const fewer = structuredClone(before);
    fewer.walks!["decode"]!.edges!.splice(0, 1);
    expect(shownBy(fewer, diff(before, fewer))?.selection).toEqual([]);
  });
});

test("fields: lists whole, what is null is not set", () => {
  expect(fieldChanges({ a: [1], b: null }, { a: [2] })).toEqual([{ path: "a", before: [1], after: [2] }]);
  expect(fieldChanges({ a: { b: 1 } }, { a: { b: 1, c: 2 } })).toEqual([
    { path: "a.c", before: undefined, after: 2 },
  ]);
  expect(fieldChanges({ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] })).toEqual([]);
  const steps = (walk: string) => ({ steps: [{ walk: "a" }, { first: [{ walk }] }] });
  const [step] = fieldChanges(steps("b"), steps("c"));
  expect(step).toEqual({ path: "steps #2.first #1.walk", before: "b", after: "c" });
  expect(fieldChanges({ a: [{ b: 1 }] }, { a: [] })).toEqual([{ path: "a", before: [{ b: 1 }], after: [] }]);
  expect(brief(undefined)).toBe("not set");
  expect(brief("x".repeat(200), 10)).toBe(`${"x".repeat(9)}…`);
});
