// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import type { GraphDocument } from "../../src/document/types";
import { Editor } from "../../src/store/editor";
import type { Documents } from "../../src/store/types";
import { packed, UndoStore } from "../../src/store/undo";

const GRAPH: GraphDocument = { format: "walkgraph/graph@1", name: "g", nodes: {}, walks: {} };
const told = (editor: Editor) => editor.graph.description ?? "";
const describeAs = (editor: Editor, ...words: string[]) => {
  for (const description of words) editor.editGraph(`Say ${description}`, (graph) => ({ ...graph, description }));
};

/** The service's answer to a page that opens the graph again. */
function again(documents: Documents): Documents {
  return JSON.parse(JSON.stringify({ ...documents, sources: undefined })) as Documents;
}

function opened(documents: Documents, storage: Storage = sessionStorage): Editor {
  const editor = new Editor("g", documents);
  editor.store.setState(new UndoStore("g", storage).read(documents) ?? {});
  return editor;
}

function left(editor: Editor, most?: number): void {
  new UndoStore("g", sessionStorage, most).write(editor.state);
}

beforeEach(() => sessionStorage.clear());

describe("a history through a reload", () => {
  it("undoes and redoes as before", () => {
    const before = new Editor("g", { graph: GRAPH, placement: null, sources: new Map([["/x", "4.0"]]) });
    describeAs(before, "one", "two", "three");
    before.undo();
    left(before);
    const after = opened(again(before.state.documents));
    expect([after.state.past.at(-1)?.label, after.state.future.at(-1)?.label]).toEqual(["Say two", "Say three"]);
    after.undo();
    after.undo();
    expect(told(after)).toBe("");
    expect(after.state.past).toEqual([]);
    expect(after.state.documents.sources).toEqual(new Map([["/x", "4.0"]]));
    for (const words of ["one", "two", "three"]) {
      after.redo();
      expect(told(after)).toBe(words);
    }
  });

  it("goes on from the state that was saved, where the last edits were not", () => {
    const before = new Editor("g", { graph: GRAPH, placement: null });
    describeAs(before, "one", "two", "three");
    left(before);
    const after = opened(again(before.state.past.at(-2)!.before));
    expect(told(after)).toBe("one");
    after.redo();
    after.redo();
    expect(told(after)).toBe("three");
    after.undo();
    expect(told(after)).toBe("two");
  });

  it("keeps single steps where unsaved edits are restored", () => {
    const before = new Editor("g", { graph: GRAPH, placement: null });
    describeAs(before, "one", "two", "three");
    left(before);
    const after = opened(again(before.state.past.at(-2)!.before));
    for (let times = 0; times < 2; times += 1) {
      after.restore("Restore", again(before.state.documents));
      expect(told(after)).toBe("three");
      expect(after.state.past.map((step) => step.label)).toEqual(["Say one", "Say two", "Say three"]);
    }
    after.undo();
    expect(told(after)).toBe("two");
    describeAs(after, "other");
    after.restore("Restore", again(before.state.documents));
    expect(after.state.past.at(-1)?.label).toBe("Restore");
    after.undo();
    expect(told(after)).toBe("other");
  });

  it("restores the last of equal states", () => {
    const before = new Editor("g", { graph: GRAPH, placement: null });
    describeAs(before, "on", "off", "on");
    left(before);
    const after = opened(again(before.state.past.at(-1)!.before));
    after.restore("Restore", again(before.state.documents));
    expect(after.state.past.map((step) => step.label)).toEqual(["Say on", "Say off", "Say on"]);
  });

  it("is none of a graph that is another one now", () => {
    const before = new Editor("g", { graph: GRAPH, placement: null });
    describeAs(before, "one");
    left(before);
    const after = opened({ graph: { ...GRAPH, description: "theirs" }, placement: null });
    expect(after.state.past).toEqual([]);
    expect(new UndoStore("other", sessionStorage).read(again(before.state.documents))).toBeNull();
  });

  it("is none of another window", () => {
    const before = new Editor("g", { graph: GRAPH, placement: null });
    describeAs(before, "one");
    left(before);
    const elsewhere = { getItem: () => null } as unknown as Storage;
    expect(opened(again(before.state.documents), elsewhere).state.past).toEqual([]);
  });

  it("loses its oldest steps where there is no room", () => {
    const before = new Editor("g", { graph: GRAPH, placement: null });
    describeAs(before, ...Array.from({ length: 64 }, (_, index) => String(index)));
    left(before, packed(before.state).length / 2);
    const after = opened(again(before.state.documents));
    expect(after.state.past.length).toBeGreaterThan(4);
    expect(after.state.past.length).toBeLessThan(64);
    after.undo();
    expect(told(after)).toBe("62");
    left(before, 10);
    expect(opened(again(before.state.documents)).state.past).toEqual([]);
  });

  it("holds once what no edit changed", () => {
    const nodes = Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`n${index}`, { component: "a.b" }]));
    const editor = new Editor("g", { graph: { ...GRAPH, nodes }, placement: null });
    const one = packed(editor.state.documents).length;
    describeAs(editor, ...Array.from({ length: 200 }, (_, index) => String(index)));
    const { documents, past, future } = editor.state;
    expect(past).toHaveLength(200);
    expect(packed({ documents, past, future }).length).toBeLessThan(10 * one);
  });

  it("survives what others wrote under its key", () => {
    for (const text of ["{nonsense", "[]", '[{"o":{"documents":null}}]', "3"]) {
      sessionStorage.setItem("walkgraph:undo:g", text);
      expect(new UndoStore("g", sessionStorage).read({ graph: GRAPH, placement: null })).toBeNull();
    }
  });
});
