// A run from its start to its end. It is the service's from the moment that it is asked for: whoever follows it may
// leave, and come back.
import { ApiError, call, send } from "../../api/client";
import type { RunEvent, RunShown } from "../../messages/answers";
import { eventsOf } from "../../api/sse";

/** Browsers let requests of 64 KiB in all finish after their page is gone; other requests may be under way. */
const OUTLIVES_BYTES = 32 * 1024;
/** Milliseconds before a stream that has broken off is asked for again, time after time. */
const WAITS: readonly number[] = [250, 1000, 2000, 4000, 8000];

/** Leaving the page doesn't lose it: a small request goes on, before a large one has left the browser asks. */
export async function start(deployment: string, task: string, request: object): Promise<RunShown> {
  const body = { deployment, task, request };
  const keepalive = new TextEncoder().encode(JSON.stringify(body)).length <= OUTLIVES_BYTES;
  const window = keepalive ? undefined : globalThis.window;
  window?.addEventListener("beforeunload", stay);
  try {
    return (await call<RunShown>("/api/v1/runs", { method: "POST", body, keepalive })).value;
  } finally {
    window?.removeEventListener("beforeunload", stay);
  }
}

function stay(event: BeforeUnloadEvent): void {
  event.preventDefault();
}

/** Every event of a run once, from its first on; fewer only where the service stays away. Raises ApiError for a run
 *  that can't be followed (any more). */
export async function* follow(
  run: string,
  signal: AbortSignal,
  waits: readonly number[] = WAITS,
): AsyncGenerator<RunEvent> {
  let seen = 0;
  for (let tries = 0; ; tries += 1) {
    try {
      const answer = await send(`/api/v1/runs/${encodeURIComponent(run)}/events`, { signal });
      let number = 0;
      for await (const event of eventsOf<RunEvent>(answer)) {
        number += 1;
        if (number <= seen) continue;
        seen = number;
        tries = 0;
        yield event;
        if (event.event === "done" || event.event === "error") return;
      }
    } catch (error) {
      if (signal.aborted || (error instanceof ApiError && error.status !== 0 && error.status < 500)) throw error;
    }
    const wait = waits[tries];
    if (wait === undefined) return;
    await pause(wait, signal);
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const left = () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", left);
      resolve();
    }, ms);
    signal.addEventListener("abort", left, { once: true });
    if (signal.aborted) left();
  });
}
