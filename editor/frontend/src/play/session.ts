// The playground of one open graph: chosen deployment and task, the forms, the run under way, what is shown. Outside
// React, so that a run goes on and its text stays while another tab is looked at.
import { createStore, type StoreApi } from "zustand/vanilla";
import { ApiError, call, send } from "../api/client";
import type { RunEvent, RunShown } from "../api/types";
import { look } from "../debug/actions";
import type { Spot } from "../debug/breaks";
import { keep } from "../debug/recorded";
import { arrive } from "../debug/arriving";
import type { Editor } from "../store/editor";
import { watchOf } from "../store/watch";
import { tell } from "../telemetry/activity";
import { eventsOf } from "../telemetry/sse";
import { fitted, fresh, givenOf, judge, request, withPicture } from "./form";
import { history, type Entry, type Head } from "./history";
import { toBytes } from "../api/base64";
import { Player, thumbnail } from "./media";
import { after, begun, broken, isOver, pictureOf, resultOf, textOf } from "./results";
import type { Given, Media, Result, RunError, TaskShown } from "./types";
import { readWav } from "./wav";
import { saidOf } from "./words";

const STOP_MS = 5000;
const SHOW_MS = 50;

export interface PlayState {
  /** Chosen by the user; null: the open graph's own, or the first. */
  chosen: string | null;
  tasks: { of: string; list: TaskShown[]; problem: string | null } | null;
  /** Deployment -> task looked at. */
  task: Readonly<Record<string, string>>;
  /** `deployment/task` -> form. */
  forms: Readonly<Record<string, Given>>;
  /** `deployment/task` -> the run under way or the last one, and what was given for it. */
  results: Readonly<Record<string, { given: Given; result: Result }>>;
  heads: readonly Head[];
  /** What the service remembers of runs, of this client and others. */
  rows: readonly RunShown[];
  /** Two entries side by side. */
  compared: [Entry, Entry] | null;
  /** The first of two, while the second is being chosen. */
  comparing: string | null;
  muted: boolean;
}

/** `record`: the service keeps every value, for comparisons. `hold`: paused before its first call. */
export interface RunOptions {
  record?: boolean;
  hold?: boolean;
  /** Where it pauses once. */
  upTo?: Spot | null;
}

/** `GET /runs/{id}/request`: what was too large is null; all of it: `request` is. */
interface Asked {
  request: { inputs?: unknown; params?: unknown } | null;
  left_out: unknown[];
}

export class Play {
  readonly store: StoreApi<PlayState>;
  /** The newest question for tasks; answers to older ones are dropped. */
  private loading: AbortController | null = null;
  private readonly running = new Map<string, AbortController>();
  private readonly player = new Player();
  /** Of all tasks here that keep one: what one of them began, another goes on with, until the page is loaded anew. */
  private readonly session = `studio-${Math.random().toString(36).slice(2, 10)}`;

  constructor(private readonly editor: Editor) {
    this.store = createStore<PlayState>(() => ({
      chosen: null,
      tasks: null,
      task: {},
      forms: {},
      results: {},
      heads: [],
      rows: [],
      compared: null,
      comparing: null,
      muted: false,
    }));
    void this.refresh();
  }

  get state(): PlayState {
    return this.store.getState();
  }

  // ── what is looked at ─────────────────────────────────────────────────────────────────────────

  choose(deployment: string): void {
    this.store.setState({ chosen: deployment, compared: null });
  }

  see(deployment: string, task: string): void {
    this.store.setState({ task: { ...this.state.task, [deployment]: task }, compared: null });
  }

  /** Ask what tasks a deployment has; called again when another version serves. */
  async load(deployment: string): Promise<void> {
    this.loading?.abort();
    const { signal } = (this.loading = new AbortController());
    try {
      const { value } = await call<TaskShown[]>(`/v1/tasks/${encodeURIComponent(deployment)}`, { signal });
      const forms = { ...this.state.forms };
      for (const task of value) {
        const key = keyOf(task);
        forms[key] = forms[key] ? fitted(task, forms[key]) : fresh(task);
      }
      this.store.setState({ tasks: { of: deployment, list: value, problem: null }, forms });
    } catch (error) {
      if (signal.aborted) return;
      const problem = error instanceof Error ? error.message : String(error);
      this.store.setState({ tasks: { of: deployment, list: [], problem } });
    }
  }

  // ── the form ──────────────────────────────────────────────────────────────────────────────────

  give(task: TaskShown, change: (given: Given) => Given): void {
    const key = keyOf(task);
    const given = this.state.forms[key] ?? fresh(task);
    this.store.setState({ forms: { ...this.state.forms, [key]: change(given) } });
  }

  /** What one task made, given to another of the same deployment. */
  hand(task: TaskShown, picture: Media): void {
    this.give(task, (given) => withPicture(task, given, picture));
    this.see(task.deployment, task.name);
  }

  reset(task: TaskShown): void {
    this.give(task, () => fresh(task));
  }

  // ── running ───────────────────────────────────────────────────────────────────────────────────

  isRunning(key: string): boolean {
    return this.running.has(key);
  }

  async run(task: TaskShown, { record = false, hold = false, upTo = null }: RunOptions = {}): Promise<void> {
    const key = keyOf(task);
    const given = this.state.forms[key] ?? fresh(task);
    if (this.running.has(key) || Object.keys(judge(task, given)).length > 0) return;
    const control = new AbortController();
    this.running.set(key, control);
    this.player.stop();
    this.player.ready();
    const start = performance.now();
    const ends: (() => void)[] = record ? [keep()] : [];
    this.store.setState({ compared: null });
    let result = begun(task.deployment, task.name, Date.now());
    let waiting: ReturnType<typeof setTimeout> | undefined;
    const put = (): void => {
      clearTimeout(waiting);
      waiting = undefined;
      this.store.setState({ results: { ...this.state.results, [key]: { given, result } } });
    };
    // Words may come faster than a screen shows them.
    const show = (next: Result): void => {
      const turned = next.state !== result.state;
      result = next;
      if (turned) put();
      else waiting ??= setTimeout(put, SHOW_MS);
    };
    put();
    try {
      const answer = await send(`/v1/tasks/${task.deployment}/${task.name}`, {
        method: "POST",
        body: {
          ...request(task, given),
          stream: true,
          ...(task.session ? { session: this.session } : {}),
          ...(record ? { record } : {}),
          ...(hold || upTo ? { hold: true } : {}),
        },
        signal: control.signal,
      });
      for await (const event of eventsOf<RunEvent>(answer)) {
        show(after(result, event, performance.now() - start));
        tell(event, task.name);
        this.listen(event);
        if (event.event !== "accepted") continue;
        this.noteSeed(task, event.seed);
        if (hold) look(this.editor, event.run);
        if (upTo) ends.push(arrive(this.editor, watchOf(task.deployment), event.run, upTo));
      }
      if (!isOver(result)) show(broken(result, { code: "offline", message: "the service ended before the run did" }));
    } catch (error) {
      show(failure(result, error));
    } finally {
      this.running.delete(key);
      for (const end of ends) end();
      put();
    }
    await this.keep({ given, result });
  }

  /** The seed that was drawn stands in the form, to be locked. */
  private noteSeed(task: TaskShown, seed: number): void {
    this.give(task, (given) =>
      given.seed.locked ? given : { ...given, seed: { text: String(seed), locked: false } },
    );
  }

  /** Ask the service for the end; its last event then tells the figures. */
  async stop(key: string): Promise<void> {
    const control = this.running.get(key);
    const run = this.state.results[key]?.result.run;
    this.player.stop();
    if (!control) return;
    if (!run) {
      control.abort();
      return;
    }
    try {
      await call(`/api/v1/runs/${run}`, { method: "DELETE" });
    } catch {
      control.abort();
    }
    // Where the end doesn't come, leaving ends the run too.
    setTimeout(() => this.running.get(key) === control && control.abort(), STOP_MS);
  }

  mute(muted: boolean): void {
    this.player.mute(muted);
    this.store.setState({ muted });
  }

  private listen(event: RunEvent): void {
    if (event.event !== "output" || event.value.type !== "audio" || event.value.mime !== "audio/wav") return;
    const sound = readWav(toBytes(event.value.data ?? ""));
    if (!sound) return;
    this.player.add(sound);
    this.player.mute(this.state.muted);
  }

  // ── what was run ──────────────────────────────────────────────────────────────────────────────

  async refresh(): Promise<void> {
    const kept = await history();
    this.store.setState({ heads: await kept.list() });
  }

  async loadRows(deployment: string): Promise<void> {
    try {
      const { value } = await call<RunShown[]>(`/api/v1/runs?deployment=${encodeURIComponent(deployment)}&limit=50`);
      this.store.setState({ rows: value });
    } catch {
      // The browser's own history is shown all the same.
    }
  }

  private async keep(made: { given: Given; result: Result }): Promise<void> {
    const { given, result } = made;
    if (!result.run) return;
    const picture =
      pictureOf(result)?.value ?? given.parts.find((part) => part.media && part.modality === "image")?.media;
    const head: Head = {
      id: result.run,
      at: result.startedAt,
      deployment: result.deployment,
      task: result.task,
      state: result.state,
      seed: result.seed,
      seconds: result.seconds,
      thumb: picture ? await thumbnail(picture) : null,
      said: saidOf(given),
      wrote: textOf(result).slice(0, 200),
      size: JSON.stringify(made).length,
    };
    try {
      await (await history()).put({ head, ...made });
      await this.refresh();
    } catch (error) {
      this.editor.say(`this run could not be kept in the browser: ${(error as Error).message}`, "error");
    }
    await this.loadRows(result.deployment);
  }

  /** Of this browser, or what the service still has. Raises Error with a sentence. */
  async entry(id: string): Promise<Entry> {
    const kept = await (await history()).get(id);
    return kept ?? (await this.remembered(id));
  }

  private async remembered(id: string): Promise<Entry> {
    const row = (await call<RunShown>(`/api/v1/runs/${id}`)).value;
    const task = await this.taskOf(row.deployment, row.task);
    const answer = await optional(call<Parameters<typeof resultOf>[0]>(`/api/v1/runs/${id}/result`));
    const asked = await optional(call<Asked>(`/api/v1/runs/${id}/request`));
    const given = givenOf(task, asked?.request ?? { params: row.params });
    const empty = { ...begun(row.deployment, row.task, row.created_at * 1000), run: id, seed: row.seed };
    const figures = { seconds: row.seconds, queued: row.queued, times: row.times as Result["times"] };
    const result = answer
      ? resultOf(answer, row)
      : { ...empty, ...figures, state: row.state, error: row.error as RunError | null };
    const head: Head = {
      id,
      at: result.startedAt,
      deployment: row.deployment,
      task: row.task,
      state: result.state,
      seed: row.seed,
      seconds: row.seconds,
      thumb: null,
      said: saidOf(given),
      wrote: textOf(result).slice(0, 200),
      size: 0,
    };
    return { head, given, result, complete: asked?.request != null && asked.left_out.length === 0 };
  }

  private async taskOf(deployment: string, name: string): Promise<TaskShown> {
    const known = this.state.tasks?.list.find((task) => task.deployment === deployment && task.name === name);
    return known ?? (await call<TaskShown>(`/v1/tasks/${deployment}/${name}`)).value;
  }

  /** Its outputs, inputs and parameters as if it had just been run. */
  async open(id: string): Promise<void> {
    const { given, result, complete } = await this.entry(id);
    if (complete === false)
      this.editor.say("The service kept not all of this run's inputs; give the missing ones again");
    const { deployment, task } = result;
    const key = `${deployment}/${task}`;
    const { results, forms, task: seen } = this.state;
    const seed = result.seed === null ? given.seed : { text: String(result.seed), locked: true };
    this.store.setState({
      ...(this.running.has(key) ? {} : { results: { ...results, [key]: { given, result } } }),
      forms: { ...forms, [key]: { ...given, seed } },
      task: { ...seen, [deployment]: task },
      chosen: deployment,
      compared: null,
    });
  }

  /** The first call names one, the second the other. */
  async compare(id: string): Promise<void> {
    const { comparing } = this.state;
    if (comparing === null || comparing === id) {
      this.store.setState({ comparing: comparing === id ? null : id, compared: null });
      return;
    }
    const compared: [Entry, Entry] = [await this.entry(comparing), await this.entry(id)];
    this.store.setState({ compared, comparing: null });
  }

  endComparing(): void {
    this.store.setState({ compared: null, comparing: null });
  }

  async remove(ids: readonly string[]): Promise<void> {
    await (await history()).remove(ids);
    await this.refresh();
  }
}

export function keyOf(task: TaskShown): string {
  return `${task.deployment}/${task.name}`;
}

const plays = new WeakMap<Editor, Play>();

/** The playground of an editor: the same each time. */
export function playOf(editor: Editor): Play {
  let play = plays.get(editor);
  if (!play) plays.set(editor, (play = new Play(editor)));
  return play;
}

function failure(result: Result, error: unknown): Result {
  if (error instanceof DOMException && error.name === "AbortError") {
    return broken(result, { code: "cancelled", message: "the run was stopped" });
  }
  if (!(error instanceof ApiError))
    return broken(result, { code: "offline", message: "the service ended before the run did" });
  const faults = error.problems.map(({ pointer, message }) => ({ pointer, message }));
  return { ...broken(result, { code: error.code || "internal_error", message: error.message }), faults };
}

async function optional<T>(asked: Promise<{ value: T }>): Promise<T | null> {
  try {
    return (await asked).value;
  } catch {
    return null;
  }
}
