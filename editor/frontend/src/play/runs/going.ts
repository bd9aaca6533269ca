// A run under way on the page: what was given for it, what has come of it so far, and how it ends without its own word.
import { ApiError } from "../../api/client";
import { broken } from "../model/results";
import type { Given, Result, RunError } from "../model/types";
import { strings } from "../../strings";

const SHOW_MS = 50;
const OFFLINE: RunError = { code: "offline", message: strings.play.theServiceStoppedBefore };

/** A run under way, and what was given for it. */
export class Going {
  readonly control = new AbortController();
  /** It is to be stopped, though its id may not be known yet. */
  unwanted = false;
  private waiting: ReturnType<typeof setTimeout> | undefined;
  /** It has ended, or nobody follows it any more. */
  readonly over: Promise<void>;
  end: () => void = () => undefined;

  constructor(
    readonly key: string,
    readonly given: Given,
    public result: Result,
    private readonly shown: (made: { given: Given; result: Result }) => void,
  ) {
    this.over = new Promise((resolve) => (this.end = resolve));
  }

  /** Words may come faster than a screen shows them. */
  show(next: Result): void {
    const turned = next.state !== this.result.state;
    this.result = next;
    if (turned) this.put();
    else this.waiting ??= setTimeout(() => this.put(), SHOW_MS);
  }

  put(): void {
    clearTimeout(this.waiting);
    this.waiting = undefined;
    this.shown({ given: this.given, result: this.result });
  }
}

/** Nobody answers any more; how it ended is told by the service once it is back. */
export function lost(result: Result): Result {
  return broken(result, OFFLINE);
}

export function isLost({ error }: Result): boolean {
  return error === OFFLINE;
}

/** Why a run could not be started or followed. */
export function failure(result: Result, error: unknown): Result {
  if (error instanceof DOMException && error.name === "AbortError") {
    return broken(result, { code: "cancelled", message: strings.play.theRunWasStopped });
  }
  if (!(error instanceof ApiError)) return lost(result);
  const faults = error.problems.map(({ pointer, message }) => ({ pointer, message }));
  return { ...broken(result, { code: error.code || "internal_error", message: error.message }), faults };
}

/** `GET /runs/{id}/request`: what was too large is null; all of it: `request` is. */
export interface Asked {
  request: { inputs?: unknown; params?: unknown } | null;
  left_out: unknown[];
}

/** null: the service has it no longer. */
export async function optional<T>(asked: Promise<{ value: T }>): Promise<T | null> {
  try {
    return (await asked).value;
  } catch {
    return null;
  }
}
