import { describe, expect, test } from "vitest";
import type { Task } from "../../src/document/types";
import { landed, isMove } from "../../src/tasks/model/moves";
import { isInTurn, lanesOf, mayHold, neighbour, runsBefore, type Row } from "../../src/tasks/model/rows";
import { bundled, rowAt, taskOf } from "./fixtures";

const edit = taskOf(bundled("bagel"), "edit");
const rows = lanesOf(edit)[0]?.rows ?? [];
const at = (pointer: string): Row => {
  const row = rows.find((each) => each.pointer === pointer);
  if (!row) throw new Error(`no row at ${pointer}`);
  return row;
};

describe("rows of a task", () => {
  test("stand in order, blocks before what is in them, an end after each list", () => {
    expect(rows.map((row) => `${row.kind} ${row.pointer}`)).toEqual([
      "walk /steps/0",
      "for /steps/1",
      "part /steps/1/text",
      "walk /steps/1/text/0",
      "end /steps/1/text/-",
      "part /steps/1/image",
      "walk /steps/1/image/0",
      "walk /steps/1/image/1",
      "end /steps/1/image/-",
      "walk /steps/2",
      "walk /steps/3",
      "first /steps/4",
      "walk /steps/4/first/0",
      "walk /steps/4/first/1",
      "end /steps/4/first/-",
      "end /steps/-",
    ]);
  });

  test("know the part and the choice that they are in", () => {
    expect(rowAt(edit, "/steps/1/image/1")).toMatchObject({ part: "image", choice: null, number: 4 });
    expect(rowAt(edit, "/steps/4/first/1")).toMatchObject({ part: null, choice: "/steps/4", number: 8 });
  });

  test("lanes each count from 1", () => {
    const lanes = lanesOf(taskOf(bundled("qwen3_omni"), "chat"));
    expect(lanes.map((lane) => lane.name)).toEqual(["thinker", "talker", "vocoder"]);
    expect(lanes[1]?.rows.flatMap((row) => (row.kind === "walk" ? [row.number] : []))).toEqual([1, 2]);
  });

  test("a draft that isn't well-formed has rows all the same", () => {
    const broken = { outputs: [], steps: [{ nothing: 1 }, "x", { first: "y" }, { for: "parts", text: 3 }] };
    const kinds = lanesOf(broken as unknown as Task)[0]?.rows.map((row) => row.kind);
    expect(kinds).toEqual(["unknown", "unknown", "first", "end", "for", "end"]);
    expect(lanesOf({ outputs: [] } as unknown as Task)[0]?.rows.map((row) => row.kind)).toEqual(["end"]);
  });
});

describe("rows of a conversation", () => {
  const chat = taskOf(bundled("shapes"), "chat");

  test("stand by role, and in them by modality", () => {
    expect((lanesOf(chat)[0]?.rows ?? []).map((row) => `${row.kind} ${row.pointer}`)).toEqual([
      "for /steps/0",
      "part /steps/0/system",
      "end /steps/0/system/-",
      "part /steps/0/user",
      "for /steps/0/user/0",
      "part /steps/0/user/0/text",
      "walk /steps/0/user/0/text/0",
      "end /steps/0/user/0/text/-",
      "part /steps/0/user/0/image",
      "walk /steps/0/user/0/image/0",
      "end /steps/0/user/0/image/-",
      "end /steps/0/user/-",
      "part /steps/0/assistant",
      "for /steps/0/assistant/0",
      "part /steps/0/assistant/0/text",
      "walk /steps/0/assistant/0/text/0",
      "end /steps/0/assistant/0/text/-",
      "end /steps/0/assistant/-",
      "walk /steps/1",
      "end /steps/-",
    ]);
    expect(rowAt(chat, "/steps/0/user/0/image/0")).toMatchObject({ part: "image", turn: "user", depth: 4 });
  });

  test("a turn may go through its parts, a part through nothing", () => {
    expect(mayHold("/steps/0/user", "for")).toBe(true);
    expect(mayHold("/steps/0/user/0/image", "for")).toBe(false);
    expect([isInTurn("/steps"), isInTurn("/steps/0/user"), isInTurn("/steps/0/user/0/text")]).toEqual([
      false,
      true,
      true,
    ]);
  });
});

test("a choice's other options have not run, other lanes may have", () => {
  expect(runsBefore(rowAt(edit, "/steps/2"), rowAt(edit, "/steps/3"))).toBe(true);
  expect(runsBefore(rowAt(edit, "/steps/3"), rowAt(edit, "/steps/2"))).toBe(false);
  expect(runsBefore(rowAt(edit, "/steps/4/first/0"), rowAt(edit, "/steps/4/first/1"))).toBe(false);
  const chat = taskOf(bundled("qwen3_omni"), "chat");
  expect(runsBefore(rowAt(chat, "/steps/talker/1"), rowAt(chat, "/steps/thinker/0"))).toBe(true);
});

test("a choice holds Walks only, and parts no further parts", () => {
  expect(mayHold("/steps/4/first", "walk")).toBe(true);
  expect(mayHold("/steps/4/first", "for")).toBe(false);
  expect(mayHold("/steps/1/image", "for")).toBe(false);
  expect(mayHold("/steps/1/image", "first")).toBe(true);
  expect(mayHold("/steps/text", "for")).toBe(true);
});

describe("moving", () => {
  test("past the neighbour, and out of the block at its end", () => {
    expect(neighbour(rows, at("/steps/2"), 1)).toEqual({ list: "/steps", index: 4 });
    expect(neighbour(rows, at("/steps/2"), -1)).toEqual({ list: "/steps", index: 1 });
    expect(neighbour(rows, at("/steps/1/image/1"), 1)).toEqual({ list: "/steps", index: 2 });
    expect(neighbour(rows, at("/steps/1/text/0"), -1)).toEqual({ list: "/steps", index: 1 });
    expect(neighbour(rows, at("/steps/0"), -1)).toBeNull();
    expect(neighbour(rows, at("/steps/4"), 1)).toBeNull();
  });

  test("a pointer is told as it is after the step was taken away", () => {
    expect(landed("/steps/0", { list: "/steps", index: 2 })).toBe("/steps/1");
    expect(landed("/steps/2", { list: "/steps", index: 0 })).toBe("/steps/0");
    expect(landed("/steps/0", { list: "/steps/1/text", index: 1 })).toBe("/steps/0/text/1");
    expect(landed("/steps/2", { list: "/steps/1/text", index: 0 })).toBe("/steps/1/text/0");
    expect(landed("/steps/1/text/0", { list: "/steps", index: 2 })).toBe("/steps/2");
    expect(landed("/steps/thinker/0", { list: "/steps/talker", index: 1 })).toBe("/steps/talker/1");
  });

  test("into itself, or to where it is, is none", () => {
    expect(isMove("/steps/1", { list: "/steps/1/text", index: 0 })).toBe(false);
    expect(isMove("/steps/1", { list: "/steps", index: 1 })).toBe(false);
    expect(isMove("/steps/1", { list: "/steps", index: 2 })).toBe(false);
    expect(isMove("/steps/1", { list: "/steps/10/text", index: 0 })).toBe(true);
  });
});
