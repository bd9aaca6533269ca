// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { parse } from "../../src/document/json";
import type { GraphDocument } from "../../src/document/types";
import { CrashCopies } from "../../src/session/crash";
import { openDocuments } from "../../src/store/documents";
import { Editor, withGraph } from "../../src/store/editor";
import { Persistence } from "../../src/session/persistence";
import type { Documents } from "../../src/store/types";
import { FakeService } from "./service";

const GRAPH: GraphDocument = { format: "walkgraph/graph@1", name: "g", nodes: {}, walks: {} };
const PLACEMENT = { name: "g", graph: "g", groups: [], ranks: [] };

let service: FakeService;
let open: Persistence[] = [];

beforeEach(() => {
  vi.useFakeTimers();
  localStorage.clear();
  service = new FakeService();
});

afterEach(() => {
  for (const persistence of open) persistence.dispose();
  open = [];
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

async function opened(name = "g"): Promise<{ editor: Editor; persistence: Persistence }> {
  const found = await openDocuments(name);
  const editor = new Editor(name, found.documents);
  editor.store.setState({ placementName: found.placementName });
  const persistence = new Persistence(editor, found.stored, new CrashCopies(name, localStorage));
  open.push(persistence);
  return { editor, persistence };
}

const describeAs = (editor: Editor, description: string) =>
  editor.editGraph("Describe", (graph) => ({ ...graph, description }));
const settle = (ms = 0) => vi.advanceTimersByTimeAsync(ms);
const stored = () => service.get("graphs/g") as GraphDocument;
const puts = () => service.count("PUT", "/api/v1/graphs/g");

describe("saving", () => {
  it("writes a second after the last edit, once, with the etag it knows", async () => {
    const etag = service.put("graphs/g", GRAPH);
    const { editor } = await opened();
    describeAs(editor, "one");
    await settle(700);
    describeAs(editor, "two");
    await settle(700);
    expect(puts()).toBe(0);
    expect(editor.state.saving.state).toBe("unsaved");
    await settle(400);
    expect(puts()).toBe(1);
    expect(service.requests.at(-1)?.ifMatch).toBe(etag);
    expect(stored().description).toBe("two");
    expect(editor.state.saving.state).toBe("saved");
    expect(editor.state.etags.graph).toBe(service.rows.get("graphs/g")?.etag);
  });

  it("writes at last where edits never pause", async () => {
    service.put("graphs/g", GRAPH);
    const { editor } = await opened();
    for (let edit = 0; edit < 20; edit += 1) {
      describeAs(editor, String(edit));
      await settle(500);
    }
    expect(puts()).toBeGreaterThan(0);
  });

  it("neither an undone edit nor a changed view is dirty", async () => {
    service.put("graphs/g", GRAPH);
    const { editor, persistence } = await opened();
    describeAs(editor, "one");
    editor.undo();
    editor.see({ tab: "tasks", selection: ["node:x"] });
    expect(persistence.dirty).toBe(false);
    await settle(6000);
    expect(puts()).toBe(0);
    expect(editor.state.saving.state).toBe("saved");
  });

  it("an edit while the service writes is written after it", async () => {
    service.put("graphs/g", GRAPH);
    const { editor, persistence } = await opened();
    describeAs(editor, "one");
    const writing = persistence.flush();
    describeAs(editor, "two");
    await writing;
    expect(stored().description).toBe("one");
    await settle(1100);
    expect(stored().description).toBe("two");
    expect(editor.state.saving.state).toBe("saved");
  });

  it("a graph that isn't there is made by the first edit, without If-Match", async () => {
    const { editor } = await opened("fresh");
    await settle(6000);
    expect(service.count("PUT", "")).toBe(0);
    describeAs(editor, "first");
    await settle(1100);
    expect(service.requests.at(-1)).toMatchObject({ method: "PUT", ifMatch: null });
    expect(service.get("graphs/fresh")).toMatchObject({ name: "fresh", description: "first" });
  });

  it("the placement is written, and removed with its last trace", async () => {
    service.put("graphs/g", GRAPH);
    const { editor } = await opened();
    editor.editPlacement("Place", () => PLACEMENT);
    await settle(1100);
    expect(service.get("placements/g")).toEqual(PLACEMENT);
    editor.editPlacement("Unplace", () => null);
    await settle(1100);
    expect(service.rows.has("placements/g")).toBe(false);
    expect(puts()).toBe(0);
  });

  it("numbers stay written as they were", async () => {
    service.put("graphs/g", GRAPH);
    service.rows.get("graphs/g")!.text = '{"name":"g","nodes":{"a":{"component":"x","params":{"shift":4.0}}}}';
    const { editor } = await opened();
    describeAs(editor, "one");
    await settle(1100);
    expect(service.requests.at(-1)?.body).toContain('"shift":4.0');
  });

  it("writes what was pasted as it was spelled; undo brings back the other spelling too", async () => {
    const text = (shift: string) => `{"name":"g","nodes":{"a":{"component":"x","params":{"shift":${shift}}}}}`;
    service.put("graphs/g", {});
    service.rows.get("graphs/g")!.text = text("4.0");
    const { editor } = await opened();
    const { value, sources } = parse(text("5.00"));
    editor.edit("Paste", (documents) => withGraph(documents, value as GraphDocument, sources));
    await settle(1100);
    expect(service.requests.at(-1)?.body).toContain('"shift":5.00');
    editor.undo();
    await settle(1100);
    expect(service.requests.at(-1)?.body).toContain('"shift":4.0}');
  });
});

describe("placements", () => {
  it("the one named like the graph, else the user's own for it, never a bundled one unasked", async () => {
    service.put("graphs/g", GRAPH);
    service.put("placements/g_bundled", { ...PLACEMENT, name: "g_bundled" }, true);
    expect((await openDocuments("g")).documents.placement).toBeNull();
    service.put("placements/other", { ...PLACEMENT, graph: "h" });
    service.put("placements/mine", { ...PLACEMENT, name: "mine" });
    expect((await openDocuments("g")).placementName).toBe("mine");
    service.put("placements/g", PLACEMENT);
    expect((await openDocuments("g")).placementName).toBe("g");
  });
});

describe("conflicts", () => {
  async function conflict(): Promise<{ editor: Editor; persistence: Persistence; theirs: GraphDocument }> {
    service.put("graphs/g", GRAPH);
    const both = await opened();
    const theirs = { ...GRAPH, description: "theirs" };
    service.put("graphs/g", theirs);
    describeAs(both.editor, "mine");
    await settle(1100);
    return { ...both, theirs };
  }

  it("what both changed differently waits for a choice; nothing is overwritten meanwhile", async () => {
    const { editor, theirs } = await conflict();
    expect(editor.state.saving).toMatchObject({ state: "conflict", theirs: { graph: theirs } });
    describeAs(editor, "mine again");
    await settle(6000);
    expect(stored()).toEqual(theirs);
    expect(editor.graph.description).toBe("mine again");
  });

  it("keep mine", async () => {
    const { editor, persistence } = await conflict();
    await persistence.resolve("mine");
    expect(stored().description).toBe("mine");
    expect(editor.state.saving.state).toBe("saved");
  });

  it("take theirs, with mine an undo away", async () => {
    const { editor, persistence } = await conflict();
    await persistence.resolve("theirs");
    expect(editor.graph.description).toBe("theirs");
    expect(editor.state.saving.state).toBe("saved");
    editor.undo();
    expect(editor.graph.description).toBe("mine");
    await settle(1100);
    expect(stored().description).toBe("mine");
  });

  it("save mine as a copy, under the first free name", async () => {
    service.put("graphs/g_copy", GRAPH);
    const { editor, persistence } = await conflict();
    expect(await persistence.resolve("copy")).toBe("g_copy2");
    expect(service.get("graphs/g_copy2")).toMatchObject({ name: "g_copy2", description: "mine" });
    expect(editor.graph.description).toBe("theirs");
  });

  it("equal content is no conflict, whatever its etag", async () => {
    service.put("graphs/g", GRAPH);
    const { editor } = await opened();
    service.put("graphs/g", { ...GRAPH, description: "same" });
    describeAs(editor, "same");
    await settle(1100);
    expect(editor.state.saving.state).toBe("saved");
    service.put("graphs/g", stored());
    describeAs(editor, "next");
    await settle(1100);
    expect(stored().description).toBe("next");
  });

  it("their placement and our graph go together", async () => {
    service.put("graphs/g", GRAPH);
    service.put("placements/g", PLACEMENT);
    const { editor } = await opened();
    service.put("graphs/g", GRAPH);
    const moved = { ...PLACEMENT, ranks: [{ rank: 0, device: "cpu" }] };
    service.put("placements/g", moved);
    describeAs(editor, "mine");
    await settle(1100);
    expect(editor.state.saving.state).toBe("saved");
    expect(editor.state.documents.placement).toEqual(moved);
    expect(stored().description).toBe("mine");
  });

  it("a graph that was deleted meanwhile is made again by an edit, not by looking", async () => {
    service.put("graphs/g", GRAPH);
    const { editor, persistence } = await opened();
    service.rows.delete("graphs/g");
    await persistence.follow();
    await settle(6000);
    expect(service.rows.has("graphs/g")).toBe(false);
    describeAs(editor, "again");
    await settle(1100);
    expect(stored().description).toBe("again");
  });

  it("a clean editor takes what is newer", async () => {
    service.put("graphs/g", GRAPH);
    const { editor, persistence } = await opened();
    service.put("graphs/g", { ...GRAPH, description: "newer" });
    await persistence.follow();
    expect(editor.graph.description).toBe("newer");
    expect(editor.state.saving.state).toBe("saved");
    expect(puts()).toBe(0);
  });
});

describe("offline", () => {
  it("says so, keeps a copy here, tries again with longer waits, and writes when it can", async () => {
    service.put("graphs/g", GRAPH);
    const { editor } = await opened();
    service.down = true;
    describeAs(editor, "one");
    await settle(1100);
    expect(editor.state.saving).toEqual({ state: "offline", message: "Offline, kept in this browser" });
    expect(new CrashCopies("g", localStorage).find()?.documents.graph.description).toBe("one");
    const before = puts();
    await settle(7000);
    const tried = puts() - before;
    expect(tried).toBeGreaterThanOrEqual(2);
    expect(tried).toBeLessThanOrEqual(4);
    service.down = false;
    await settle(31_000);
    expect(stored().description).toBe("one");
    expect(editor.state.saving.state).toBe("saved");
  });

  it("keeps an edit at once while the page says that it does", async () => {
    service.put("graphs/g", GRAPH);
    const { editor } = await opened();
    service.down = true;
    describeAs(editor, "one");
    await settle(1100);
    describeAs(editor, "two");
    expect(editor.state.saving).toMatchObject({ message: "Offline, kept in this browser" });
    expect(new CrashCopies("g", localStorage).find()?.documents.graph.description).toBe("two");
  });

  it("what the service refuses is told in its words and not repeated until the next edit", async () => {
    service.put("graphs/g", GRAPH);
    const { editor } = await opened();
    service.refusing = 413;
    describeAs(editor, "one");
    await settle(60_000);
    expect(puts()).toBe(1);
    expect(editor.state.saving).toMatchObject({ message: expect.stringContaining("answered 413") });
    service.refusing = null;
    describeAs(editor, "two");
    await settle(1100);
    expect(stored().description).toBe("two");
  });
});

describe("the copy in this browser", () => {
  const found = () => new CrashCopies("g", localStorage).find();

  it("is there soon after an edit, and gone with the save", async () => {
    const etag = service.put("graphs/g", GRAPH);
    const { editor } = await opened();
    describeAs(editor, "one");
    await settle(400);
    expect(Object.keys(localStorage)).toEqual([`walkgraph:unsaved:g:${etag}`]);
    await settle(1000);
    expect(Object.keys(localStorage)).toEqual([]);
  });

  it("is offered again and again until the user decides", async () => {
    service.put("graphs/g", GRAPH);
    const { editor, persistence } = await opened();
    describeAs(editor, "lost");
    await settle(400);
    persistence.dispose();
    expect(found()?.documents.graph.description).toBe("lost");
    expect(found()?.documents.graph.description).toBe("lost");
    const copies = new CrashCopies("g", localStorage);
    copies.drop();
    expect(found()).not.toBeNull();
    copies.forget();
    expect(found()).toBeNull();
  });

  it("keeps how numbers are spelled", () => {
    const documents = { graph: GRAPH, placement: null, sources: new Map([["/nodes/a/params/shift", "4.0"]]) };
    new CrashCopies("g", localStorage).write({ etag: null, at: 1, documents });
    expect(found()).toEqual({ etag: null, at: 1, documents });
  });

  it("is another document's business if the name only begins alike", () => {
    const documents = { graph: GRAPH, placement: null } as Documents;
    new CrashCopies("g2", localStorage).write({ etag: null, at: 1, documents });
    expect(found()).toBeNull();
  });

  it("survives what others wrote under its key", () => {
    localStorage.setItem("walkgraph:unsaved:g:new", "{nonsense");
    expect(found()).toBeNull();
  });
});

describe("read only", () => {
  it("puts an edit back and says why; undo can't reach it either", async () => {
    service.put("graphs/g", GRAPH);
    const { editor, persistence } = await opened();
    persistence.hold("Open elsewhere.");
    describeAs(editor, "one");
    expect(editor.graph).toEqual(GRAPH);
    expect(editor.state.past).toEqual([]);
    expect(editor.state.toasts.at(-1)?.message).toContain("Open elsewhere.");
    await settle(6000);
    expect(puts()).toBe(0);
  });

  it("follows what the other saves, and edits from there", async () => {
    service.put("graphs/g", GRAPH);
    const { editor, persistence } = await opened();
    persistence.hold("Open elsewhere.");
    service.put("graphs/g", { ...GRAPH, description: "theirs" });
    await persistence.follow();
    expect(editor.graph.description).toBe("theirs");
    expect(editor.state.saving.state).toBe("readonly");
    await persistence.release();
    describeAs(editor, "mine");
    await settle(1100);
    expect(stored().description).toBe("mine");
  });
});
