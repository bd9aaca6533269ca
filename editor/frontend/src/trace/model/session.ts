// The trace page of an editor: which deployment and run, its model, or the live one; what is selected in it. Outside
// React, so that it stays while another tab is looked at.
import { createStore, type StoreApi } from "zustand/vanilla";
import { ApiError, call, send } from "../../api/client";
import type { RunShown } from "../../messages/answers";
import type { GraphDocument } from "../../document/types";
import { factsOf } from "../../document/routes";
import type { Editor } from "../../store/editor";
import { mark } from "../../store/highlight";
import type { Frame } from "../../messages/frames";
import { subscribe } from "../../api/socket";
import { linksOf, type Link } from "./find";
import { LiveTrace } from "./live";
import type { Model } from "./model";
import { Timeline } from "./timeline";
import type { StatisticsShown, TraceRow, TraceShown, WhyShown } from "./types";
import { modelOf } from "./whole";
import { strings } from "../../strings";

/** A run that goes on is asked for anew so often. */
const AGAIN_MS = 1000;
/** How long to wait for a finished run's trace, which is put together a moment after its end. */
const SETTLE_MS = 700;
const LISTED = 100;
/** Shown of live work at first, in microseconds. */
const LIVE_SPAN = 10e6;

export interface Shown {
  trace: TraceShown;
  model: Model;
  why: WhyShown | null;
  /** Why there is no `why`. */
  unknown: string | null;
}

/** One of two runs side by side, or the only one. */
export type Which = "a" | "b";

export type Side = "details" | "why" | "nodes";

export interface TraceState {
  /** Chosen by the user; null: the open graph's own, or the first. */
  chosen: string | null;
  rows: readonly TraceRow[];
  running: readonly RunShown[];
  /** Why there is no list. */
  problem: string | null;
  /** null: live. */
  run: string | null;
  shown: Shown | null;
  /** The run beside it. */
  other: Shown | null;
  comparing: boolean;
  loading: boolean;
  /** Why the chosen run isn't shown. */
  refused: string | null;
  /** Block of the run, or of the live model. */
  selected: { block: number; of: Which } | null;
  lane: { index: number; of: Which } | null;
  side: Side;
  /** Live: the newest is kept in sight. */
  follow: boolean;
  statistics: StatisticsShown | null;
}

export class TraceSession {
  readonly store: StoreApi<TraceState> = createStore<TraceState>(() => ({
    chosen: null,
    rows: [],
    running: [],
    problem: null,
    run: null,
    shown: null,
    other: null,
    comparing: false,
    loading: false,
    refused: null,
    selected: null,
    lane: null,
    side: "details",
    follow: true,
    statistics: null,
  }));
  /** Shared by all pictures of this page. */
  readonly timeline = new Timeline();
  readonly live = new Map<string, LiveTrace>();
  /** Called when live events have come. */
  readonly told = new Set<() => void>();
  private deployment: string | null = null;
  private watchers = 0;
  private leave: (() => void) | null = null;
  private asking = 0;
  private again: ReturnType<typeof setTimeout> | undefined;
  private listing: ReturnType<typeof setTimeout> | undefined;
  private graph: GraphDocument | null = null;
  private links: { model: Model; block: number; list: Link[] } | null = null;

  constructor(private readonly editor: Editor) {}

  get state(): TraceState {
    return this.store.getState();
  }

  // ── what is looked at ─────────────────────────────────────────────────────────────────────────

  /** Somebody looks at this deployment until the returned function is called. */
  open(deployment: string): () => void {
    this.turnTo(deployment);
    this.watchers += 1;
    this.leave ??= subscribe((frame) => this.hear(frame));
    void this.list();
    void this.loadGraph();
    if (this.state.shown?.trace.state === "running") void this.load(this.state.shown.trace.run);
    return () => {
      this.watchers -= 1;
      if (this.watchers > 0) return;
      this.leave?.();
      this.leave = null;
      clearTimeout(this.again);
      clearTimeout(this.listing);
    };
  }

  private turnTo(deployment: string): void {
    if (deployment === this.deployment) return;
    this.deployment = deployment;
    this.graph = null;
    this.links = null;
    this.asking += 1;
    clearTimeout(this.again);
    const nothing = { run: null, shown: null, other: null, selected: null, lane: null, statistics: null };
    this.store.setState({ ...nothing, rows: [], running: [], problem: null, refused: null, loading: false });
    this.toLive();
  }

  /** A run, for who comes from another view. */
  lookAt(deployment: string, run: string): void {
    this.choose(deployment);
    this.turnTo(deployment);
    this.store.setState({ comparing: false });
    void this.show(run);
  }

  choose(deployment: string): void {
    this.store.setState({ chosen: deployment });
  }

  see(side: Side): void {
    this.store.setState({ side });
    if (side === "nodes") void this.loadStatistics();
  }

  /** Live, or a run; while one is looked for to compare with, the other. */
  async show(run: string | null): Promise<void> {
    const { comparing, shown } = this.state;
    if (comparing && run !== null && shown && run !== shown.trace.run) return this.compare(run);
    this.asking += 1;
    clearTimeout(this.again);
    this.select(null);
    this.store.setState({ run, shown: null, other: null, comparing: false, refused: null, loading: run !== null });
    if (run === null) this.toLive();
    else await this.load(run);
  }

  /** The newest seconds, and on with them. */
  toLive(): void {
    const { to } = this.liveTrace.model;
    const end = Number.isFinite(to) ? to : 0;
    this.timeline.all = this.timeline.span = { from: end - LIVE_SPAN, to: end };
    this.timeline.follow(end);
    this.store.setState({ follow: true });
  }

  startComparing(): void {
    this.store.setState({ comparing: true });
  }

  endComparing(): void {
    this.select(null);
    this.store.setState({ comparing: false, other: null });
    this.spread();
  }

  select(block: number | null, of: Which = "a"): void {
    if (block === null) return this.unselect();
    const model = this.modelOf(of);
    this.store.setState({ selected: { block, of }, lane: { index: model.lane.at(block), of } });
    mark(model.laneAt(block).nodes);
  }

  selectLane(index: number, of: Which): void {
    this.store.setState({ lane: { index, of }, selected: null, side: "details" });
    mark(this.modelOf(of).lanes[index]?.nodes ?? []);
  }

  unselect(): void {
    this.store.setState({ selected: null, lane: null });
    mark([]);
  }

  setFollow(follow: boolean): void {
    if (follow !== this.state.follow) this.store.setState({ follow });
  }

  // ── models ────────────────────────────────────────────────────────────────────────────────────

  get liveTrace(): LiveTrace {
    const deployment = this.deployment ?? "";
    let live = this.live.get(deployment);
    if (!live) this.live.set(deployment, (live = new LiveTrace(this.hopName)));
    return live;
  }

  modelOf(of: Which): Model {
    const { shown, other } = this.state;
    return (of === "b" ? other : shown)?.model ?? this.liveTrace.model;
  }

  /** Hops that end or begin at a block; of a live one, those that were told when it was chosen. */
  linksOf(block: number, of: Which): Link[] {
    const model = this.modelOf(of);
    if (this.links?.model !== model || this.links.block !== block) {
      const list = linksOf(model, this.nodeOf).filter((link) => link.from === block || link.to === block);
      this.links = { model, block, list };
    }
    return this.links.list;
  }

  /** The block that could begin with a hop, else the one that it came from; null where neither is known. */
  blockOfHop(hop: number): number | null {
    const { shown } = this.state;
    const link = shown && linksOf(shown.model, this.nodeOf)[hop];
    return link ? (link.to ?? link.from) : null;
  }

  private readonly nodeOf = (walk: string, use: string): string => {
    const found = this.graph?.walks?.[walk];
    return (found && factsOf(found).uses.get(use)?.node) || use;
  };

  private readonly hopName = (walk: string, edge: number, stream: boolean): string | null => {
    if (stream) return null;
    const found = this.graph?.walks?.[walk];
    const route = found && factsOf(found).routes[edge];
    return route ? `${route.from} -> ${route.to}` : null;
  };

  // ── asking ────────────────────────────────────────────────────────────────────────────────────

  async list(): Promise<void> {
    const { deployment } = this;
    if (deployment === null) return;
    const id = encodeURIComponent(deployment);
    try {
      const [rows, running] = await Promise.all([
        call<TraceRow[]>(`/api/v1/deployments/${id}/traces?limit=${LISTED}`),
        call<RunShown[]>(`/api/v1/runs?deployment=${id}&state=running&limit=50`),
      ]);
      if (deployment === this.deployment)
        this.store.setState({ rows: rows.value, running: running.value, problem: null });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (deployment === this.deployment) this.store.setState({ problem: error.message });
    }
  }

  async loadStatistics(): Promise<void> {
    const { deployment } = this;
    if (deployment === null) return;
    try {
      const { value } = await call<StatisticsShown>(
        `/api/v1/deployments/${encodeURIComponent(deployment)}/statistics`,
      );
      if (deployment === this.deployment) this.store.setState({ statistics: value });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
  }

  private async loadGraph(): Promise<void> {
    const { deployment } = this;
    if (deployment === null || this.graph) return;
    try {
      const { value } = await call<GraphDocument>(`/api/v1/deployments/${encodeURIComponent(deployment)}/graph`);
      if (deployment === this.deployment) [this.graph, this.links] = [value, null];
    } catch (error) {
      // Hops are then drawn without the names of nodes.
      if (!(error instanceof ApiError)) throw error;
    }
  }

  private async load(run: string): Promise<void> {
    const asked = this.asking;
    clearTimeout(this.again);
    try {
      const shown = await fetched(run);
      if (asked !== this.asking) return;
      const first = this.state.shown === null;
      this.keepSelected(shown.model);
      this.store.setState({ shown, loading: false, refused: null });
      this.spread(first);
      // It has just ended: the list was read before its trace was kept.
      if (shown.trace.state !== "running" && !this.state.rows.some((row) => row.run === run))
        this.listSoon(SETTLE_MS);
      if (shown.trace.state === "running" && this.watchers > 0)
        this.again = setTimeout(() => void this.load(run), AGAIN_MS);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (asked === this.asking) this.store.setState({ loading: false, refused: error.message });
    }
  }

  /** Blocks of a trace that was read anew have other numbers. */
  private keepSelected(model: Model): void {
    const { shown, selected, lane } = this.state;
    if (!shown) return;
    const old = shown.model;
    const same = (index: number): number => {
      const { rank, name, nodes, loop, spans, of } = old.lanes[index]!;
      return model.laneOf(rank, name, nodes, loop, spans, of === null ? null : same(of));
    };
    const block =
      selected?.of === "a"
        ? model
            .inLane(model.lanes[same(old.lane.at(selected.block))]!)
            .find((id) => sameTimes(old, selected.block, model, id))
        : undefined;
    this.store.setState({
      selected: block === undefined ? null : { block, of: "a" },
      lane: lane?.of === "a" ? { index: same(lane.index), of: "a" } : lane,
    });
  }

  /** The timeline is of what is shown; all of it at once where `fit`. */
  private spread(fit = true): void {
    const { shown, other } = this.state;
    if (!shown) return;
    const models = [shown.model, ...(other ? [other.model] : [])];
    this.timeline.all = {
      from: Math.min(...models.map((model) => model.from)),
      to: Math.max(...models.map((model) => model.to)),
    };
    if (fit) this.timeline.fit();
    else this.timeline.set(this.timeline.span);
  }

  private async compare(run: string): Promise<void> {
    const asked = this.asking;
    this.store.setState({ loading: true });
    try {
      const other = await fetched(run);
      if (asked !== this.asking) return;
      this.store.setState({ other, comparing: false, side: "nodes" });
      this.spread();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.editor.say(error.message, "error");
    } finally {
      if (asked === this.asking) this.store.setState({ loading: false });
    }
  }

  private hear(frame: Frame): void {
    if (frame.type === "welcome" || frame.type === "gap") return this.listSoon(0);
    if (frame.deployment !== this.deployment) return;
    if (frame.type === "events") {
      const live = this.liveTrace;
      const { epoch } = live;
      live.take(frame.events, frame.wall);
      if (epoch !== live.epoch && this.state.run === null) this.select(null);
      if (frame.events.some((event) => event.type === "run" && event.phase !== "first_output"))
        this.listSoon(SETTLE_MS);
      for (const told of this.told) told();
    } else if (frame.type === "run") this.listSoon(SETTLE_MS);
  }

  private listSoon(ms: number): void {
    clearTimeout(this.listing);
    this.listing = setTimeout(() => void this.list(), ms);
  }
}

function sameTimes(a: Model, one: number, b: Model, other: number): boolean {
  return a.started.at(one) === b.started.at(other) && a.finished.at(one) === b.finished.at(other);
}

/** Raises ApiError. */
async function fetched(run: string): Promise<Shown> {
  const trace = (await (await send(`/api/v1/runs/${encodeURIComponent(run)}/trace`)).json()) as TraceShown;
  const model = modelOf(trace);
  if (trace.state === "running") return { trace, model, why: null, unknown: strings.trace.knownOnceTheRunHas };
  try {
    const why = (await call<WhyShown>(`/api/v1/runs/${encodeURIComponent(run)}/why`)).value;
    return { trace, model, why, unknown: null };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { trace, model, why: null, unknown: error.message };
  }
}

const sessions = new WeakMap<Editor, TraceSession>();

/** The trace page of an editor: the same each time. */
export function traceOf(editor: Editor): TraceSession {
  let session = sessions.get(editor);
  if (!session) sessions.set(editor, (session = new TraceSession(editor)));
  return session;
}
