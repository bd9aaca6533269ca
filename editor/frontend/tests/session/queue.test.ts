import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Queue, standingOf } from "../../src/session/queue";
import type { QueueShown } from "../../src/messages/answers";

type Heard = (frame: Record<string, unknown>) => void;
const listeners = vi.hoisted(() => new Set<Heard>());
vi.mock("../../src/api/socket", () => ({
  subscribe: (listener: Heard) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
}));

const RUN = { task: "draw", created_at: 1, state: "waiting" as const, said: "a cat", up: false, down: false };
const asked: string[] = [];
let answers: Record<string, QueueShown | (() => Promise<QueueShown>)> = {};

function shown(...places: string[]): QueueShown {
  const runs = places.map((run, place) => ({ ...RUN, run, place: place + 1 }));
  return { deployment: "shapes", waiting: places.length, runs };
}

beforeEach(() => {
  vi.useFakeTimers();
  asked.length = 0;
  answers = {};
  vi.stubGlobal("fetch", async (path: string, { method, body }: RequestInit) => {
    const question = `${method} ${path}${body ? ` ${body as string}` : ""}`;
    asked.push(question);
    const found = answers[question] ?? shown();
    return new Response(JSON.stringify(typeof found === "function" ? await found() : found));
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const GET = "GET /api/v1/queue?deployment=shapes";
const order = (queue: Queue) => queue.store.getState().runs.map(({ run }) => run);

test("what the service tells is shown, and a move shows its answer at once", async () => {
  answers[GET] = shown("a", "b");
  answers['POST /api/v1/queue/b/move {"direction":"up"}'] = shown("b", "a");
  const queue = new Queue("shapes");
  await queue.load();
  expect(order(queue)).toEqual(["a", "b"]);
  await queue.move("b", "up");
  expect(order(queue)).toEqual(["b", "a"]);
  expect(asked).toHaveLength(2);
});

test("an answer that comes late doesn't undo a move", async () => {
  let late: (value: QueueShown) => void = () => undefined;
  answers[GET] = () => new Promise((resolve) => (late = resolve));
  answers['POST /api/v1/queue/b/move {"direction":"up"}'] = shown("b", "a");
  const queue = new Queue("shapes");
  const loading = queue.load();
  await queue.move("b", "up");
  late(shown("a", "b"));
  await loading;
  expect(order(queue)).toEqual(["b", "a"]);
});

test("a question that was sent after a move, and answered before it, is asked again", async () => {
  let moved: (value: QueueShown) => void = () => undefined;
  answers[GET] = shown("a", "b");
  answers['POST /api/v1/queue/b/move {"direction":"up"}'] = () => new Promise((resolve) => (moved = resolve));
  const queue = new Queue("shapes");
  const moving = queue.move("b", "up");
  await queue.load();
  answers[GET] = shown("b", "a");
  moved(shown("b", "a"));
  await moving;
  await vi.runAllTimersAsync();
  expect(order(queue)).toEqual(["b", "a"]);
});

test("a run that waits has a place, one that goes on has none, and another client's isn't known", () => {
  const told = shown("a", "b");
  told.runs.unshift({ ...RUN, run: "first", state: "running", place: null });
  expect(["first", "b", "other"].map((run) => standingOf(told, run))).toEqual([
    { state: "running", kind: "busy", words: "running", place: "" },
    { state: "waiting", kind: "", words: "waiting", place: "place 2 of 2" },
    null,
  ]);
  expect(standingOf(told, null)).toBeNull();
});

test("frames of this deployment ask again, many of them once, and nobody is asked after it was left", async () => {
  const queue = new Queue("shapes");
  const leave = queue.watch();
  const tell = (frame: Record<string, unknown>) => listeners.forEach((listener) => listener(frame));
  tell({ type: "run", deployment: "world" });
  tell({ type: "events", deployment: "shapes" });
  await vi.runAllTimersAsync();
  expect(asked).toEqual([]);
  for (const type of ["run", "deployment", "paused", "resumed"]) tell({ type, deployment: "shapes" });
  await vi.runAllTimersAsync();
  expect(asked).toEqual([GET]);
  tell({ type: "run", deployment: "shapes" });
  leave();
  await vi.runAllTimersAsync();
  expect(asked).toEqual([GET]);
  expect(listeners.size).toBe(0);
});

test("a refused move says why, and the queue is read again", async () => {
  answers['POST /api/v1/queue/b/move {"direction":"down"}'] = () => Promise.reject(new TypeError("offline"));
  const queue = new Queue("shapes");
  await expect(queue.move("b", "down")).rejects.toThrow();
  await vi.runAllTimersAsync();
  expect(asked.at(-1)).toBe(GET);
});

test("one run or all of them are cancelled", async () => {
  const queue = new Queue("shapes");
  await queue.cancel("a");
  await queue.cancelAll();
  expect(asked).toEqual(["DELETE /api/v1/runs/a", "DELETE /api/v1/queue?deployment=shapes"]);
});
