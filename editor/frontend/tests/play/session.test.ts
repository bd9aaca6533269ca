// The playground over a service in memory: runs outlive the page, forms come back, the list hears of ends.
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { RunEvent, RunShown } from "../../src/messages/answers";
import { follow, start } from "../../src/play/runs/following";
import { history } from "../../src/play/runs/history";
import { Kept, MOST_FILES } from "../../src/play/runs/kept";
import { keyOf, Play } from "../../src/play/runs/session";
import type { Given, TaskShown } from "../../src/play/model/types";
import { Editor } from "../../src/store/editor";
import { FakeService } from "../shell/service";
import { EDIT, PNG } from "./tasks";

const SAY: TaskShown = {
  ...EDIT,
  name: "say",
  inputs: { prompt: { modality: "text", many: false, optional: false, description: "" } },
  outputs: ["text"],
  params: { steps: { type: "integer", default: 4, min: 1, max: 9, choices: [], description: "" } },
};
const KEY = keyOf(SAY);

/** The storage of a browser tab. */
class TabStorage {
  readonly items = new Map<string, string>();
  getItem = (key: string) => this.items.get(key) ?? null;
  setItem = (key: string, value: string) => void this.items.set(key, value);
}

class FakeAudio {
  createGain = () => ({ gain: { value: 1 }, connect: () => undefined, disconnect: () => undefined });
  resume = () => Promise.resolve();
  suspend = () => Promise.resolve();
}

class FakeSocket {
  static all: FakeSocket[] = [];
  onmessage: ((message: { data: unknown }) => void) | null = null;
  constructor() {
    FakeSocket.all.push(this);
  }
  close() {}
  say(frame: unknown) {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }
}

/** A run of the service, whose events come when they are told. */
class FakeRun {
  readonly events: RunEvent[] = [];
  private readonly followers = new Set<ReadableStreamDefaultController<Uint8Array>>();
  private over = false;

  constructor(
    readonly id: string,
    service: FakeService,
  ) {
    service.answers.set("POST /api/v1/runs", () => this.row("running"));
    service.answers.set(`GET /api/v1/runs/${id}/events`, (_, signal) => this.answer(signal));
    service.answers.set(`GET /api/v1/runs/${id}`, () => this.row("done"));
    service.answers.set(`DELETE /api/v1/runs/${id}`, () => ({ state: "cancelling" }));
    this.tell({ event: "accepted", run: id, seed: 7 });
  }

  row(state: RunShown["state"]): RunShown {
    const { deployment, name: task } = SAY;
    const rest = { created_at: 1, seconds: 2, queued: 0, seed: 7, params: {}, error: null, times: [] };
    return { id: this.id, deployment, task, state, ...rest };
  }

  tell(event: RunEvent): void {
    this.events.push(event);
    this.over = event.event === "done";
    for (const follower of this.followers) this.give(follower, event);
  }

  say(text: string): void {
    const value = { type: "text", text };
    this.tell({ event: "output", run: this.id, name: "text", index: 0, iteration: null, value });
  }

  done(): void {
    this.tell({ event: "done", run: this.id, seconds: 2, queued: 0, times: [] });
  }

  /** Whoever follows is cut off. */
  breakOff(): void {
    for (const follower of this.followers) follower.error(new TypeError("network error"));
    this.followers.clear();
  }

  get followed(): number {
    return this.followers.size;
  }

  private answer(signal: AbortSignal | null): Response {
    const body = new ReadableStream<Uint8Array>({
      start: (follower) => {
        this.followers.add(follower);
        signal?.addEventListener("abort", () => follower.error(signal.reason));
        for (const event of this.events) this.give(follower, event);
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  }

  private give(follower: ReadableStreamDefaultController<Uint8Array>, { event, ...data }: RunEvent): void {
    follower.enqueue(new TextEncoder().encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`));
    if (this.over) {
      follower.close();
      this.followers.delete(follower);
    }
  }
}

let service: FakeService;
let tab: TabStorage;
let ids = 0;

beforeEach(async () => {
  service = new FakeService();
  tab = new TabStorage();
  FakeSocket.all = [];
  vi.stubGlobal("sessionStorage", tab);
  vi.stubGlobal("AudioContext", FakeAudio);
  vi.stubGlobal("WebSocket", FakeSocket);
  vi.stubGlobal("location", { protocol: "http:", host: "here" });
  service.answers.set("GET /v1/tasks/shapes", () => [SAY]);
  service.answers.set("GET /api/v1/runs?deployment=shapes&limit=50", () => []);
  await (await history()).remove((await (await history()).list()).map(({ id }) => id));
});
afterEach(() => vi.unstubAllGlobals());

function made(): { run: FakeRun; play: Play } {
  ids += 1;
  return { run: new FakeRun(`r${ids}`, service), play: page() };
}

/** As after a load of the page. */
function page(): Play {
  return new Play(new Editor("shapes", { graph: { name: "shapes" } as never, placement: null }));
}

const write = (play: Play, text: string) =>
  play.give(SAY, (given) => ({ ...given, parts: given.parts.map((part) => ({ ...part, text })) }));
const result = (play: Play) => play.state.results[KEY]?.result;

/** A run that is followed; `going` ends with it. */
async function begun(play: Play, run: FakeRun): Promise<{ going: Promise<void> }> {
  await play.load("shapes");
  write(play, "a red circle");
  const going = play.run(SAY);
  await vi.waitFor(() => expect(run.followed).toBe(1));
  return { going };
}

describe("a run", () => {
  it("is the service's from the moment that it is asked for, and lets the page go", async () => {
    const { run, play } = made();
    const { going } = await begun(play, run);
    const [asked] = service.requests.filter(({ path, method }) => path === "/api/v1/runs" && method === "POST");
    expect(asked?.keepalive).toBe(true);
    expect(JSON.parse(asked?.body ?? "")).toMatchObject({
      deployment: "shapes",
      task: "say",
      request: { inputs: { prompt: "a red circle" } },
    });
    run.say("round");
    run.done();
    await going;
    expect(result(play)).toMatchObject({ state: "done", run: run.id, seed: 7, seconds: 2 });
    expect(result(play)?.outputs["text"]?.text).toBe("round");
    expect(service.count("DELETE", "/api/v1/runs")).toBe(0);
  });

  it("is found again by the next page, with what has come of it and what is to come", async () => {
    const { run, play } = made();
    await begun(play, run);
    run.say("a red ");
    await vi.waitFor(async () => expect(await (await history()).get(run.id)).not.toBeNull());
    run.breakOff();
    const next = page();
    await next.load("shapes");
    await vi.waitFor(() => expect(result(next)?.outputs["text"]?.text).toBe("a red "));
    expect(next.isRunning(KEY)).toBe(true);
    expect(next.state.heads.map(({ id, state }) => [id, state])).toEqual([[run.id, "waiting"]]);
    run.say("circle");
    run.done();
    await vi.waitFor(() => expect(next.state.heads[0]?.state).toBe("done"));
    expect(result(next)).toMatchObject({ state: "done", run: run.id });
    expect(result(next)?.outputs["text"]?.text).toBe("a red circle");
    expect(next.isRunning(KEY)).toBe(false);
  });

  it("that has ended meanwhile, and can't be followed any more, shows how it ended", async () => {
    const { run, play } = made();
    await begun(play, run);
    await vi.waitFor(async () => expect(await (await history()).get(run.id)).not.toBeNull());
    service.answers.delete(`GET /api/v1/runs/${run.id}/events`);
    const next = page();
    await next.load("shapes");
    await vi.waitFor(() => expect(result(next)).toMatchObject({ state: "done", run: run.id, seconds: 2 }));
  });

  it("is stopped, also before its id is known", async () => {
    const { run, play } = made();
    await play.load("shapes");
    write(play, "x");
    const going = play.run(SAY);
    await play.stop(KEY);
    await vi.waitFor(() => expect(service.count("DELETE", `/api/v1/runs/${run.id}`)).toBe(1));
    run.done();
    await going;
  });

  it("counts each event once, however often its stream breaks off", async () => {
    const { run } = made();
    run.say("one ");
    const told: string[] = [];
    const reading = (async () => {
      for await (const event of follow(run.id, new AbortController().signal, [0, 0])) told.push(event.event);
    })();
    await vi.waitFor(() => expect(told).toHaveLength(2));
    run.breakOff();
    await vi.waitFor(() => expect(run.followed).toBe(1));
    run.say("two");
    run.done();
    await reading;
    expect(told).toEqual(["accepted", "output", "output", "done"]);
  });

  it("keeps the page until a large request has left", async () => {
    const heard = { addEventListener: vi.fn(), removeEventListener: vi.fn() };
    made();
    vi.stubGlobal("window", heard);
    await start("shapes", "say", { inputs: { prompt: "x".repeat(40_000) } });
    expect(service.requests.at(-1)?.keepalive).toBe(false);
    expect([heard.addEventListener.mock.calls[0]?.[0], heard.removeEventListener.mock.calls[0]?.[0]]).toEqual([
      "beforeunload",
      "beforeunload",
    ]);
  });
});

describe("the list of runs", () => {
  it("hears of the end of a run, whoever has begun it", async () => {
    const { run, play } = made();
    let state: RunShown["state"] = "running";
    service.answers.set("GET /api/v1/runs?deployment=shapes&limit=50", () => [run.row(state)]);
    const leave = play.watch("shapes");
    await play.loadRows("shapes");
    expect(play.state.rows.map((row) => row.state)).toEqual(["running"]);
    state = "done";
    const ended = { type: "run", seq: 1, run: run.id, task: "say", state: "done", seconds: 3 };
    FakeSocket.all[0]?.say({ ...ended, deployment: "other" });
    expect(play.state.rows[0]?.state).toBe("running");
    FakeSocket.all[0]?.say({ ...ended, seq: 2, deployment: "shapes" });
    expect(play.state.rows).toMatchObject([{ state: "done", seconds: 3 }]);
    leave();
  });
});

describe("what stands in a form", () => {
  it("is there again after the page was loaded anew, with its task", async () => {
    const { play } = made();
    service.answers.set("GET /v1/tasks/shapes", () => [EDIT, SAY]);
    await play.load("shapes");
    write(play, "a blue square");
    play.give(SAY, (given) => ({ ...given, params: { steps: 3 }, seed: { text: "5", locked: true } }));
    play.see("shapes", "say");
    await vi.waitFor(() => expect(tab.getItem(`walkgraph:play:form:${KEY}`)).toContain("blue square"));
    const next = page();
    await next.load("shapes");
    const { parts, params, seed } = next.state.forms[KEY]!;
    expect([parts[0]?.text, params, seed]).toEqual(["a blue square", { steps: 3 }, { text: "5", locked: true }]);
    expect(next.state.task).toEqual({ shapes: "say" });
    const keys = [...next.state.forms[KEY]!.parts, ...next.state.forms[keyOf(EDIT)]!.parts].map(({ key }) => key);
    expect(new Set(keys).size).toBe(keys.length);
  });

  it("has its files as far as there is room for them", () => {
    const kept = new Kept(tab as unknown as Storage);
    const media = (data: string) => ({ mime: "image/png", data, name: "x.png" });
    const part = (data: string) => ({ key: data.slice(0, 3), input: "image", modality: "image", text: "" as string });
    const given: Given = {
      parts: [
        { ...part("a"), media: media(PNG) },
        { ...part("b"), media: media("A".repeat(MOST_FILES)) },
      ],
      ordered: false,
      params: {},
      seed: { text: "", locked: false },
    };
    kept.write({ [KEY]: given });
    const found = new Kept(tab as unknown as Storage).form(KEY);
    expect(found?.parts.map(({ media }) => media?.data ?? null)).toEqual([PNG, null]);
    tab.items.set(`walkgraph:play:form:${KEY}`, "{");
    expect(kept.form(KEY)).toBeNull();
    expect(new Kept(null).look()).toEqual({ task: {}, chosen: {} });
  });
});
