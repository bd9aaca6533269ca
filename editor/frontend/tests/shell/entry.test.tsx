// @vitest-environment jsdom
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Editor } from "../../src/store/editor";
import { useEditor, useEditorState } from "../../src/store/react";
import { FakeService } from "./service";

let shown: Editor[] = [];
let mounts = 0;

vi.mock("../../src/styles", () => ({ styles: ".wg{}" }));
vi.mock("../../src/play/PlayView", () => ({
  PlayView: function PlayView({ alone = false }: { alone?: boolean }) {
    const name = useEditorState((state) => state.name);
    return <p>{`play ${name} ${alone ? "alone" : "beside its graph"}`}</p>;
  },
}));
vi.mock("../../src/trace/TraceView", () => ({
  TraceView: function TraceView({ alone = false }: { alone?: boolean }) {
    const name = useEditorState((state) => state.name);
    return <p>{`trace ${name} ${alone ? "alone" : "beside its graph"}`}</p>;
  },
}));
vi.mock("../../src/session/following", () => ({
  Following: class {
    dispose() {}
  },
}));
vi.mock("../../src/api/socket", () => ({
  subscribe: () => () => undefined,
  telemetry: { status: () => ({ state: "open" }), watch: () => () => undefined },
}));
vi.mock("../../src/shell/App", async () => {
  const { useEffect } = await import("react");
  return {
    App: () => {
      const editor = useEditor();
      shown.push(editor);
      useEffect(() => void (mounts += 1), []);
      return <button type="button">{editor.state.view.tab}</button>;
    },
  };
});

const { default: entry } = await import("../../src/index");

let service: FakeService;
let host: HTMLElement;
let parent: ShadowRoot;
let setStateValue: ReturnType<typeof vi.fn<(name: string, value: unknown) => void>>;
let leave: (() => void) | null = null;
let number = 0;
let graph: string;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe() {}
      disconnect() {}
    },
  );
  vi.stubGlobal("matchMedia", () => ({ matches: false }));
  service = new FakeService();
  number += 1;
  graph = `g${number}`;
  service.put(`graphs/${graph}`, { name: graph, nodes: {}, walks: {} });
  [shown, mounts] = [[], 0];
  setStateValue = vi.fn();
  newPlace();
});

afterEach(async () => {
  leave?.();
  await settle();
  leave = null;
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function newPlace(): void {
  host?.remove();
  host = document.createElement("div");
  document.body.append(host);
  parent = host.attachShadow({ mode: "open" });
}

/** React and the service in memory answer in turns of the event loop, timers in fake milliseconds. */
async function settle(ms = 20): Promise<void> {
  await vi.advanceTimersByTimeAsync(ms);
  for (let turn = 0; turn < 30; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

async function call(data: Record<string, unknown> = {}): Promise<void> {
  const whole = { v: 1, mode: "edit", graph, tab: null, load: 0, report: true, ...data };
  const given = { data: whole, key: "k", parentElement: parent };
  leave = entry({ ...given, setStateValue, setTriggerValue: () => undefined } as Parameters<typeof entry>[0]);
  await settle();
}

async function go(): Promise<void> {
  leave?.();
  await settle();
  leave = null;
  newPlace();
}

it("called again with the same parent it keeps what is mounted, styles once", async () => {
  await call();
  const button = parent.querySelector("button");
  await call({ load: 1 });
  await call();
  expect(parent.querySelectorAll("style")).toHaveLength(1);
  expect(parent.querySelector("button")).toBe(button);
  expect(mounts).toBe(1);
});

it("dark follows the background", async () => {
  const dark = () => parent.querySelector(".wg")!.classList.contains("dark");
  const paint = (color: string) => parent.querySelector("div")!.style.setProperty("--st-background-color", color);
  await call();
  expect(dark()).toBe(false);
  paint("#0e1117");
  await call();
  expect(dark()).toBe(true);
});

it("tells how the document stands: later, once, again after a change of page", async () => {
  await call();
  expect(setStateValue).not.toHaveBeenCalled();
  await settle(1000);
  const etag = service.rows.get(`graphs/${graph}`)!.etag;
  const clean = { name: graph, rev: 0, etag: null, dirty: false, errors: 0, warnings: 0 };
  expect(setStateValue.mock.calls.map(([name]) => name)).toEqual(["doc"]);
  expect(setStateValue).toHaveBeenLastCalledWith("doc", { ...clean, etag });
  await call();
  await settle(1000);
  expect(setStateValue).toHaveBeenCalledTimes(1);
  await go();
  await call();
  await settle(1000);
  expect(setStateValue).toHaveBeenCalledTimes(2);
});

it("reports nothing to a page that doesn't ask for it", async () => {
  await call({ report: false });
  await settle(1000);
  expect(setStateValue).not.toHaveBeenCalled();
});

it("saves when it leaves; document, history and view are there when it is back", async () => {
  await call();
  const editor = shown.at(-1)!;
  editor.see({ tab: "tasks" });
  editor.editGraph("Describe", (old) => ({ ...old, description: "kept" }));
  await go();
  expect(service.get(`graphs/${graph}`)).toMatchObject({ description: "kept" });
  await call();
  expect(shown.at(-1)).toBe(editor);
  expect(editor.state.past).toHaveLength(1);
  expect(parent.querySelector("button")?.textContent).toBe("tasks");
});

it("Python's tab is taken once, not at every call", async () => {
  await call({ tab: "deploy" });
  const editor = shown.at(-1)!;
  expect(editor.state.view.tab).toBe("deploy");
  editor.see({ tab: "graph" });
  await call({ tab: "deploy", load: 1 });
  expect(editor.state.view.tab).toBe("graph");
});

it("a greater load brings what the service has", async () => {
  await call();
  service.put(`graphs/${graph}`, { name: graph, description: "imported" });
  await call();
  expect(shown.at(-1)!.graph.description).toBeUndefined();
  await call({ load: 1 });
  expect(shown.at(-1)!.graph.description).toBe("imported");
});

it("a service that is away is told, and can be tried again", async () => {
  service.down = true;
  await call();
  expect(parent.textContent).toContain("can't be opened");
  service.down = false;
  parent.querySelector("button")!.click();
  await settle();
  expect(shown).not.toHaveLength(0);
});

it("r and c stay inside, elsewhere they are Streamlit's", async () => {
  await call();
  const heard: string[] = [];
  const listen = (event: KeyboardEvent) => heard.push(event.key);
  document.addEventListener("keydown", listen, true);
  const press = (target: Element, init: KeyboardEventInit) =>
    target.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, composed: true, ...init }));
  const inside = parent.querySelector("button")!;
  press(inside, { key: "r" });
  press(inside, { key: "c" });
  press(inside, { key: "c", ctrlKey: true });
  press(document.body, { key: "r" });
  expect(heard).toEqual(["c", "r"]);
  document.removeEventListener("keydown", listen, true);
});

it("the playground alone needs no document", async () => {
  await call({ mode: "play", deployment: "shapes" });
  expect(parent.textContent).toContain("play shapes alone");
  expect(service.count("GET", "/api/v1/graphs")).toBe(0);
});

it("the trace alone needs no document", async () => {
  await call({ mode: "trace", deployment: "shapes" });
  expect(parent.textContent).toContain("trace shapes alone");
  expect(service.count("GET", "/api/v1/graphs")).toBe(0);
});
