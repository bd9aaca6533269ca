// One WebSocket to the service's telemetry per page, open while somebody listens.
import { useSyncExternalStore } from "react";
import type { Frame, Sent } from "../messages/frames";
import { Sequence } from "./sequence";

export type { Frame } from "../messages/frames";

export interface Connection {
  state: "open" | "connecting" | "closed";
  /** Round trip to the service, in ms; absent until it was measured. */
  latency?: number;
  /** Live figures on the canvas are held; frames still come. */
  paused: boolean;
}

export type Listener = (frame: Frame) => void;

/** The browser functions that the socket needs; tests pass their own. */
export interface Surroundings {
  open: (url: string) => WebSocket;
  /** The round trip in ms; rejects where nobody answers. */
  ping: () => Promise<number>;
  url: () => string;
  random: () => number;
  visible: () => boolean;
}

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
const PING_MS = 15_000;
/** The socket stays open this long after the last listener left: views come and go. */
const LINGER_MS = 2_000;

/** Milliseconds to wait before the given attempt (from 0): doubled each time, with up to a half taken off. */
export function backoff(attempt: number, random: () => number): number {
  const wait = Math.min(FIRST_WAIT_MS * 2 ** Math.min(attempt, 10), LONGEST_WAIT_MS);
  return wait * (1 - random() / 2);
}

export class TelemetrySocket {
  private readonly listeners = new Set<Listener>();
  private readonly watchers = new Set<() => void>();
  private readonly sequence = new Sequence();
  private connection: Connection = { state: "closed", paused: false };
  private socket: WebSocket | null = null;
  private attempt = 0;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private linger: ReturnType<typeof setTimeout> | undefined;
  private beat: ReturnType<typeof setInterval> | undefined;

  constructor(private readonly around: Surroundings) {}

  /** Frames from now on, until the returned function is called. */
  readonly subscribe = (listener: Listener): (() => void) => {
    this.listeners.add(listener);
    clearTimeout(this.linger);
    if (!this.socket && this.retry === undefined) this.connect();
    return () => {
      if (!this.listeners.delete(listener) || this.listeners.size > 0) return;
      clearTimeout(this.linger);
      this.linger = setTimeout(() => this.close(), LINGER_MS);
    };
  };

  readonly status = (): Connection => this.connection;

  /** Called when the status changes. */
  readonly watch = (changed: () => void): (() => void) => {
    this.watchers.add(changed);
    return () => this.watchers.delete(changed);
  };

  setPaused(paused: boolean): void {
    this.set({ paused });
  }

  /** Try at once instead of when the waiting is over. */
  readonly retryNow = (): void => {
    if (this.connection.state === "open" || this.listeners.size === 0) return;
    this.drop();
    this.connect();
  };

  private connect(): void {
    clearTimeout(this.retry);
    this.retry = undefined;
    this.set({ state: "connecting" });
    const socket = this.around.open(this.around.url());
    this.socket = socket;
    socket.onmessage = (message) => this.take(socket, message.data);
    socket.onopen = () => this.opened(socket);
    socket.onclose = () => this.lost(socket);
  }

  private opened(socket: WebSocket): void {
    if (socket !== this.socket) return;
    this.set({ state: "open" });
    clearInterval(this.beat);
    this.beat = setInterval(() => void this.measure(socket), PING_MS);
    void this.measure(socket);
  }

  private take(socket: WebSocket, data: unknown): void {
    if (socket !== this.socket || typeof data !== "string") return;
    let frame: Sent;
    try {
      frame = JSON.parse(data) as Sent;
    } catch {
      return;
    }
    // The service speaks: the next loss starts with a short wait again.
    this.attempt = 0;
    const gap = this.sequence.see(frame);
    if (gap) this.tell(gap);
    if (frame.type !== "dropped") this.tell(frame);
  }

  private tell(frame: Frame): void {
    for (const listener of this.listeners) {
      try {
        listener(frame);
      } catch (error) {
        // One view's failure is not the others'.
        console.error(error);
      }
    }
  }

  private lost(socket: WebSocket): void {
    if (socket !== this.socket) return;
    this.drop();
    if (this.listeners.size === 0) {
      this.set({ state: "closed" });
      return;
    }
    this.set({ state: "connecting" });
    this.retry = setTimeout(() => this.connect(), backoff(this.attempt, this.around.random));
    this.attempt += 1;
  }

  /** A socket whose peer went without a word stays open for minutes; a request beside it tells sooner. */
  private async measure(socket: WebSocket): Promise<void> {
    if (!this.around.visible()) return;
    try {
      const latency = await this.around.ping();
      if (socket === this.socket) this.set({ latency });
    } catch {
      this.lost(socket);
    }
  }

  private close(): void {
    this.drop();
    this.set({ state: "closed" });
  }

  private drop(): void {
    clearTimeout(this.retry);
    clearInterval(this.beat);
    this.retry = undefined;
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }

  private set(change: Partial<Connection>): void {
    const next = { ...this.connection, ...change };
    if (next.state !== "open") delete next.latency;
    const { state, latency, paused } = this.connection;
    if (next.state === state && next.latency === latency && next.paused === paused) return;
    this.connection = next;
    for (const changed of this.watchers) changed();
  }
}

const browser: Surroundings = {
  open: (url) => new WebSocket(url),
  ping: async () => {
    const before = performance.now();
    const answer = await fetch("/health/live", { cache: "no-store", signal: AbortSignal.timeout(10_000) });
    await answer.arrayBuffer();
    return Math.round(performance.now() - before);
  },
  url: () => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/v1/telemetry`,
  random: Math.random,
  visible: () => document.visibilityState === "visible",
};

/** The page's socket. */
export const telemetry = new TelemetrySocket(browser);
export const subscribe = telemetry.subscribe;
export const status = telemetry.status;

export function useConnection(): Connection {
  return useSyncExternalStore(telemetry.watch, telemetry.status);
}
