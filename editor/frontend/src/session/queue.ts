// The runs of this client that wait for their turn or go on, on one deployment: what the service tells, and their moves.
import { createStore, type StoreApi } from "zustand/vanilla";
import { call } from "../api/client";
import { subscribe } from "../api/socket";
import type { QueuedShown, QueueShown } from "../messages/answers";
import { strings } from "../strings";

/** Many runs may come, begin and end at once. */
const SOON_MS = 250;

export class Queue {
  readonly store: StoreApi<QueueShown>;
  private asking: ReturnType<typeof setTimeout> | undefined;
  /** Answers to older questions are dropped. */
  private asked = 0;

  constructor(private readonly deployment: string) {
    this.store = createStore<QueueShown>(() => ({ deployment, waiting: 0, runs: [] }));
  }

  /** While it is shown. */
  watch(): () => void {
    const leave = subscribe((frame) => {
      if (frame.type === "welcome" || frame.type === "gap") this.loadSoon();
      if ("deployment" in frame && frame.deployment === this.deployment && TELLING.has(frame.type)) this.loadSoon();
    });
    return () => {
      leave();
      clearTimeout(this.asking);
      this.asking = undefined;
    };
  }

  loadSoon(): void {
    this.asking ??= setTimeout(() => {
      this.asking = undefined;
      void this.load();
    }, SOON_MS);
  }

  async load(): Promise<void> {
    try {
      await this.take("GET", `/api/v1/queue?${this.query}`);
    } catch {
      // The next frame asks again.
    }
  }

  /** Past this client's next run, `up` towards the front. Raises ApiError where it can't. */
  async move(run: string, direction: "up" | "down"): Promise<void> {
    try {
      await this.take("POST", `/api/v1/queue/${encodeURIComponent(run)}/move`, { direction });
    } catch (error) {
      this.loadSoon();
      throw error;
    }
  }

  async cancel(run: string): Promise<void> {
    await call(`/api/v1/runs/${encodeURIComponent(run)}`, { method: "DELETE" });
    this.loadSoon();
  }

  async cancelAll(): Promise<void> {
    await call(`/api/v1/queue?${this.query}`, { method: "DELETE" });
    this.loadSoon();
  }

  private get query(): string {
    return `deployment=${encodeURIComponent(this.deployment)}`;
  }

  private async take(method: "GET" | "POST", path: string, body?: unknown): Promise<void> {
    const asked = (this.asked += 1);
    const { value } = await call<QueueShown>(path, body === undefined ? { method } : { method, body });
    if (asked === this.asked) this.store.setState(value);
    // A question that was sent after the move may have been answered before it.
    else if (method === "POST") this.loadSoon();
  }
}

/** How an unfinished run of this client stands, in words. */
export interface Standing {
  state: QueuedShown["state"];
  /** The kind of a badge. */
  kind: string;
  words: string;
  /** `place 2 of 5`; empty: it isn't in the queue. */
  place: string;
}

const KINDS: Record<QueuedShown["state"], string> = {
  running: "busy",
  paused: "warn",
  suspended: "warn",
  waiting: "",
};

/** null: the queue doesn't tell of this run; it is over, or another client's. */
export function standingOf({ runs, waiting }: QueueShown, run: string | null): Standing | null {
  const found = runs.find((one) => one.run === run);
  if (!found) return null;
  const { state, place } = found;
  const at = place === null ? "" : strings.shell.placeOf(place, waiting);
  return { state, kind: KINDS[state], words: strings.shell.queued[state], place: at };
}

/** Frames after which the queue may be another one. */
const TELLING: ReadonlySet<string> = new Set(["deployment", "run", "paused", "resumed"]);
