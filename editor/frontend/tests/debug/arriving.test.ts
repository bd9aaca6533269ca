import { beforeEach, expect, it } from "vitest";
import type { Request } from "../../src/api/client";
import { arrive } from "../../src/debug/model/arriving";
import { debuggingOf } from "../../src/debug/model/state";
import { Editor } from "../../src/store/editor";
import { WatchStore } from "../../src/store/watch";
import type { Frame, HeldCall } from "../../src/messages/frames";
import { breakpoint, call, GRAPH } from "./fixtures";

const SPOT = { walk: "decode", use: "next" };

let tell: (frame: Frame) => void;
let asked: string[];
let editor: Editor;
let watch: WatchStore;

beforeEach(() => {
  asked = [];
  editor = new Editor("g", { graph: GRAPH, placement: null });
  watch = new WatchStore("g", {
    call: async <T>(path: string, { method = "GET", body }: Request = {}) => {
      const action = (body as { action?: string } | undefined)?.action ?? "";
      if (method !== "GET") asked.push(`${method} ${path.replace("/api/v1/", "")} ${action}`.trim());
      const empty = path.endsWith("/watch") ? { level: "summary", taps: [], breakpoints: [] } : [];
      const value = path.endsWith("/breakpoints") ? breakpoint({ ...SPOT, run: "r1" }) : empty;
      return { value: value as T, etag: null, sources: new Map() };
    },
    subscribe: (listener) => {
      tell = listener;
      return () => undefined;
    },
    frame: (run) => run(),
  });
});

function pausedAt(held: HeldCall[], at = ""): void {
  tell({ type: "paused", deployment: "g", seq: 1, run: "r1", held, breakpoint: at });
}

const soon = () => new Promise((resolve) => setTimeout(resolve));
const SET = "POST deployments/g/breakpoints";
const GO_ON = "POST runs/r1/steer resume";
const CLEAR = "DELETE deployments/g/breakpoints/b1";

it("a held run gets its breakpoint before it is let go, and loses it where it arrives", async () => {
  const end = arrive(editor, watch, "r1", SPOT);
  await soon();
  expect(asked).toEqual([SET]);
  pausedAt([]);
  await soon();
  expect(asked).toEqual([SET]);
  pausedAt([call()]);
  await soon();
  expect(asked).toEqual([SET, GO_ON]);
  expect(debuggingOf(editor).getState().run).toBeNull();
  pausedAt([call({ use: "next" })], "b1");
  await soon();
  expect(asked).toEqual([SET, GO_ON, CLEAR]);
  expect(debuggingOf(editor).getState()).toMatchObject({ run: "r1", open: true, pane: "paused" });
  end();
  await soon();
  expect(asked).toHaveLength(3);
});

it("one that begins where it is to stop stays", async () => {
  arrive(editor, watch, "r1", SPOT);
  await soon();
  pausedAt([call({ use: "next" })]);
  await soon();
  expect(asked).toEqual([SET, CLEAR]);
  expect(debuggingOf(editor).getState().run).toBe("r1");
});

it("another breakpoint on the way leaves its own armed, which ends with the run", async () => {
  const end = arrive(editor, watch, "r1", SPOT);
  await soon();
  pausedAt([call()]);
  await soon();
  pausedAt([call({ use: "last" })], "b9");
  await soon();
  expect(asked).toEqual([SET, GO_ON]);
  end();
  await soon();
  expect(asked).toEqual([SET, GO_ON]);
});

it("where another breakpoint stands at the same place, it has arrived as well", async () => {
  arrive(editor, watch, "r1", SPOT);
  await soon();
  pausedAt([call()]);
  await soon();
  pausedAt([call({ use: "next" })], "b9");
  await soon();
  expect(asked).toEqual([SET, GO_ON, CLEAR]);
});

it("a run that is over at once leaves nothing armed", async () => {
  const end = arrive(editor, watch, "r1", SPOT);
  end();
  await soon();
  expect(asked).toEqual([SET, CLEAR]);
});
