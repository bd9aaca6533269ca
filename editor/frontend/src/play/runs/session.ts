// The playground of one open graph: chosen deployment and task, the forms, the run under way, what is shown. Outside
// React, so that a run goes on and its text stays while another tab is looked at.
import { createStore, type StoreApi } from "zustand/vanilla";
import { call } from "../../api/client";
import type { RunEvent, RunShown } from "../../messages/answers";
import { look } from "../../debug/model/actions";
import type { Spot } from "../../debug/model/breaks";
import { keep } from "../../debug/model/recorded";
import { arrive } from "../../debug/model/arriving";
import type { Editor } from "../../store/editor";
import { watchOf } from "../../store/watch";
import { tell } from "../../telemetry/activity";
import type { RunFrame } from "../../messages/frames";
import { subscribe } from "../../api/socket";
import { follow, start } from "./following";
import { failure, Going, isLost, lost, optional, type Asked } from "./going";
import { answered, conversationOf, takenBy } from "../model/conversation";
import { fresh, givenOf, judge, request, withPicture } from "../model/form";
import { history, type Entry, type Head } from "./history";
import { LastingForms } from "./forms";
import { Kept, tabStorage } from "./kept";
import { toBytes } from "../../api/base64";
import { Player, thumbnail } from "../files/media";
import { after, begun, broken, isOver, pictureOf, resultOf, textOf } from "../model/results";
import type { Given, Media, Result, RunError, TaskShown } from "../model/types";
import { readWav } from "../files/wav";
import { saidOf } from "../model/words";
import { strings } from "../../strings";

const STOP_MS = 5000;
const WRITE_MS = 200;
/** Many runs may end at once. */
const ROWS_MS = 500;

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
  /** Runs that the service remembers, of this client and others. */
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

export class Play {
  readonly store: StoreApi<PlayState>;
  /** The newest question for tasks; answers to older ones are dropped. */
  private loading: AbortController | null = null;
  private readonly running = new Map<string, Going>();
  private readonly kept = new Kept(tabStorage());
  private readonly lasting: LastingForms;
  private rowsAsked = 0;
  private writing: ReturnType<typeof setTimeout> | undefined;
  private asking: ReturnType<typeof setTimeout> | undefined;
  private readonly player = new Player();
  /** Shared by all tasks here that keep a session: one task continues what another began, until the page is reloaded. */
  private readonly session = `studio-${Math.random().toString(36).slice(2, 10)}`;

  constructor(private readonly editor: Editor) {
    this.lasting = new LastingForms(editor, this.kept);
    const { task, chosen } = this.kept.look();
    this.store = createStore<PlayState>(() => ({
      chosen: chosen[editor.state.name] ?? null,
      tasks: null,
      task,
      forms: {},
      results: {},
      heads: [],
      rows: [],
      compared: null,
      comparing: null,
      muted: false,
    }));
    this.store.subscribe((now, before) => {
      if (now.forms !== before.forms) this.writeSoon();
      if (now.task !== before.task || now.chosen !== before.chosen) this.writeLook();
    });
    globalThis.window?.addEventListener("pagehide", () => this.lasting.write(this.state.forms));
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
      this.know(deployment, value);
      void this.recover(deployment);
    } catch (error) {
      if (signal.aborted) return;
      const problem = error instanceof Error ? error.message : String(error);
      this.store.setState({ tasks: { of: deployment, list: [], problem } });
    }
  }

  /** Takes the tasks that a deployment has. */
  know(deployment: string, list: TaskShown[]): void {
    const forms = this.lasting.filled(list, this.state.forms);
    this.store.setState({ tasks: { of: deployment, list, problem: null }, forms });
  }

  // ── the form ──────────────────────────────────────────────────────────────────────────────────

  give(task: TaskShown, change: (given: Given) => Given): void {
    const key = keyOf(task);
    const given = this.state.forms[key] ?? fresh(task);
    this.store.setState({ forms: { ...this.state.forms, [key]: change(given) } });
  }

  /** Passes the output of one task to another task of the same deployment. */
  hand(task: TaskShown, picture: Media): void {
    this.give(task, (given) => withPicture(task, given, picture));
    this.see(task.deployment, task.name);
  }

  reset(task: TaskShown): void {
    this.give(task, () => fresh(task));
  }

  /** Typing doesn't wait for the browser's store. */
  private writeSoon(): void {
    this.writing ??= setTimeout(() => {
      this.writing = undefined;
      this.lasting.write(this.state.forms);
    }, WRITE_MS);
  }

  private writeLook(): void {
    const { task, chosen } = this.state;
    const all = this.kept.look().chosen;
    if (chosen === null || this.lasting.isScratch(chosen)) delete all[this.editor.state.name];
    else all[this.editor.state.name] = chosen;
    this.kept.writeLook({ task: { ...task }, chosen: all });
  }

  // ── running ───────────────────────────────────────────────────────────────────────────────────

  isRunning(key: string): boolean {
    return this.running.has(key);
  }

  /** Resolves once nothing runs for a form. */
  async over(key: string): Promise<void> {
    await this.running.get(key)?.over;
  }

  async run(task: TaskShown, { record = false, hold = false, upTo = null }: RunOptions = {}): Promise<void> {
    const key = keyOf(task);
    const given = this.state.forms[key] ?? fresh(task);
    if (this.running.has(key) || Object.keys(judge(task, given)).length > 0) return;
    this.player.stop();
    this.player.ready();
    const ends: (() => void)[] = record ? [keep()] : [];
    this.store.setState({ compared: null });
    const going = this.goes(key, given, begun(task.deployment, task.name, Date.now()));
    try {
      const row = await start(task.deployment, task.name, {
        ...request(task, given),
        ...(task.session ? { session: this.session } : {}),
        ...(record ? { record } : {}),
        ...(hold || upTo ? { hold: true } : {}),
      });
      going.show({ ...going.result, state: "waiting", run: row.id, seed: row.seed });
      if (going.unwanted) await this.end(going, row.id);
      const kept = this.keep(going);
      if (hold) look(this.editor, row.id);
      if (upTo) ends.push(arrive(this.editor, watchOf(task.deployment), row.id, upTo));
      await this.follow(going, row.id, (event) => {
        this.listen(event);
        if (event.event === "accepted") this.noteSeed(task, event.seed);
      });
      this.continueWith(task, going.result);
      await kept;
    } catch (error) {
      going.show(failure(going.result, error));
    } finally {
      this.left(going);
      for (const end of ends) end();
    }
    await this.keep(going);
  }

  private goes(key: string, given: Given, result: Result): Going {
    const going = new Going(key, given, result, (made) =>
      this.store.setState({ results: { ...this.state.results, [key]: made } }),
    );
    this.running.set(key, going);
    going.put();
    return going;
  }

  private left(going: Going): void {
    this.running.delete(going.key);
    going.put();
    going.end();
  }

  /** Shows what comes of a run until it is over, or nobody answers any more. */
  private async follow(going: Going, run: string, heard?: (event: RunEvent) => void): Promise<void> {
    const since = performance.now() - (Date.now() - going.result.startedAt);
    for await (const event of follow(run, going.control.signal)) {
      const next = after(going.result, event, performance.now() - since);
      // Nobody saw when the outputs of a recovered run came.
      going.show(heard ? next : { ...next, firstOutputAt: null });
      tell(event, going.result.task);
      heard?.(event);
    }
    if (!isOver(going.result)) going.show(lost(going.result));
  }

  /** Runs that an earlier page has begun: one that goes on is followed, of the others it is read how they ended. */
  private async recover(deployment: string): Promise<void> {
    await this.refresh();
    const open = this.state.heads.filter((head) => head.deployment === deployment && !isOver(head));
    const kept = await history();
    for (const { id } of open) {
      const entry = await kept.get(id);
      if (entry) void this.resume(entry);
    }
  }

  private async resume({ given, result }: Entry): Promise<void> {
    const { run, deployment, task } = result;
    const key = `${deployment}/${task}`;
    if (run === null || [...this.running.values()].some((going) => going.result.run === run)) return;
    if (this.running.has(key)) {
      const ended = await this.ending(result, run);
      if (isOver(ended)) await this.keep({ given, result: ended });
      return;
    }
    // Its events are told from the first one on.
    const going = this.goes(key, given, { ...begun(deployment, task, result.startedAt), run, seed: result.seed });
    try {
      await this.follow(going, run);
    } catch {
      going.show(await this.ending(going.result, run));
    } finally {
      this.left(going);
    }
    await this.keep(going);
  }

  /** How a run that can't be followed has ended. */
  private async ending(result: Result, id: string): Promise<Result> {
    try {
      const { result: found } = await this.remembered(id);
      return isOver(found) ? { ...found, startedAt: result.startedAt } : result;
    } catch {
      return broken(result, { code: "not_found", message: strings.play.theServiceNoLongerKnows });
    }
  }

  /** The answer to a conversation is its next turn. */
  private continueWith(task: TaskShown, result: Result): void {
    const input = conversationOf(task);
    const text = textOf(result);
    if (input === null || result.state !== "done" || text === "") return;
    this.give(task, (given) => answered(given, input, takenBy(task, input), text));
  }

  /** The seed that was drawn stands in the form, to be locked. */
  private noteSeed(task: TaskShown, seed: number): void {
    this.give(task, (given) =>
      given.seed.locked ? given : { ...given, seed: { text: String(seed), locked: false } },
    );
  }

  /** Ask the service for the end; its last event then tells the figures. */
  async stop(key: string): Promise<void> {
    const going = this.running.get(key);
    this.player.stop();
    if (!going) return;
    going.unwanted = true;
    if (going.result.run) await this.end(going, going.result.run);
  }

  private async end(going: Going, run: string): Promise<void> {
    try {
      await call(`/api/v1/runs/${run}`, { method: "DELETE" });
    } catch {
      going.control.abort();
    }
    // Where the end doesn't come, nobody waits for it.
    setTimeout(() => this.running.get(going.key) === going && going.control.abort(), STOP_MS);
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

  /** While its runs are listed: of one that ends it is told at once, whoever has begun it. */
  watch(deployment: string): () => void {
    const leave = subscribe((frame) => {
      if (frame.type === "welcome" || frame.type === "gap") this.loadRowsSoon(deployment);
      if (frame.type === "run" && frame.deployment === deployment) this.ended(frame);
      if (frame.type === "deployment" && frame.deployment === deployment) this.loadRowsSoon(deployment);
    });
    return () => {
      leave();
      clearTimeout(this.asking);
      this.asking = undefined;
    };
  }

  private ended({ deployment, run, state, seconds }: RunFrame): void {
    const { rows } = this.state;
    // An answer that is under way may not know of it yet.
    this.loadRowsSoon(deployment);
    this.store.setState({ rows: rows.map((row) => (row.id === run ? { ...row, state, seconds } : row)) });
  }

  private loadRowsSoon(deployment: string): void {
    this.asking ??= setTimeout(() => {
      this.asking = undefined;
      void this.loadRows(deployment);
    }, ROWS_MS);
  }

  async loadRows(deployment: string): Promise<void> {
    const asked = (this.rowsAsked += 1);
    try {
      const { value } = await call<RunShown[]>(`/api/v1/runs?deployment=${encodeURIComponent(deployment)}&limit=50`);
      if (asked === this.rowsAsked) this.store.setState({ rows: value });
    } catch {
      // The browser's own history is shown all the same.
    }
  }

  private async keep(made: { given: Given; result: Result }): Promise<void> {
    const { given, result } = made;
    if (!result.run || isLost(result)) return;
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
      size: JSON.stringify({ given, result }).length,
    };
    try {
      await (await history()).put({ head, given, result });
      await this.refresh();
    } catch (error) {
      this.editor.say(strings.play.thisRunCouldNot((error as Error).message), "error");
    }
    await this.loadRows(result.deployment);
  }

  /** Reads from this browser, or from what the service still has. Throws an Error with a sentence. */
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
      : { ...empty, ...figures, state: row.state, error: row.error as RunError | null, lost: true };
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
    const entry = await this.entry(id);
    const { given, result, complete } = entry;
    if (complete === false) this.editor.say(strings.play.theServiceDidNotKeep);
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
    if (!isOver(result)) void this.resume({ ...entry, result });
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
