import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { backoff, TelemetrySocket, type Frame, type Surroundings } from "../../src/api/socket";

class FakeSocket {
  onopen: (() => void) | null = null;
  onclose: (() => void) | null = null;
  onmessage: ((message: { data: unknown }) => void) | null = null;
  closed = false;
  constructor(readonly url: string) {}
  close() {
    this.closed = true;
  }
  say(frame: unknown) {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }
}

let sockets: FakeSocket[];
let ping: Surroundings["ping"];
let visible: boolean;

function made(): TelemetrySocket {
  return new TelemetrySocket({
    open: (url) => {
      const socket = new FakeSocket(url);
      sockets.push(socket);
      return socket as unknown as WebSocket;
    },
    ping: () => ping(),
    url: () => "ws://here/ws/v1/telemetry",
    random: () => 0,
    visible: () => visible,
  });
}

beforeEach(() => {
  vi.useFakeTimers();
  sockets = [];
  visible = true;
  ping = () => Promise.resolve(3);
});
afterEach(() => void vi.useRealTimers());

it("opens one socket for all listeners and closes it some time after the last has left", () => {
  const telemetry = made();
  const leaves = [telemetry.subscribe(() => undefined), telemetry.subscribe(() => undefined)];
  expect(sockets).toHaveLength(1);
  for (const leave of leaves) leave();
  vi.advanceTimersByTime(1000);
  expect(sockets[0]?.closed).toBe(false);
  telemetry.subscribe(() => undefined)();
  vi.advanceTimersByTime(3000);
  expect(sockets).toHaveLength(1);
  expect(sockets[0]?.closed).toBe(true);
  expect(telemetry.status().state).toBe("closed");
});

it("gives every listener each frame, a gap before the frame that shows it, and survives a listener that fails", () => {
  const telemetry = made();
  const heard: Frame[] = [];
  const complaint = vi.spyOn(console, "error").mockImplementation(() => undefined);
  telemetry.subscribe(() => {
    throw new Error("one view is broken");
  });
  telemetry.subscribe((frame) => heard.push(frame));
  sockets[0]?.say({ type: "welcome", boot: "a", seq: 1 });
  sockets[0]?.say({ type: "run", seq: 3 });
  sockets[0]?.say({ type: "dropped", count: 2 });
  sockets[0]?.onmessage?.({ data: "no json" });
  expect(heard.map((frame) => frame.type)).toEqual(["welcome", "gap", "run", "gap"]);
  expect(complaint).toHaveBeenCalledTimes(4);
});

it("connects again after each loss, later each time, and soon again once it was heard of", () => {
  const telemetry = made();
  telemetry.subscribe(() => undefined);
  for (const [losses, wait] of [500, 1000, 2000].entries()) {
    sockets.at(-1)?.onclose?.();
    expect(telemetry.status().state).toBe("connecting");
    vi.advanceTimersByTime(wait - 1);
    expect(sockets).toHaveLength(losses + 1);
    vi.advanceTimersByTime(1);
    expect(sockets).toHaveLength(losses + 2);
  }
  sockets.at(-1)?.say({ type: "welcome", boot: "a", seq: 1 });
  sockets.at(-1)?.onclose?.();
  vi.advanceTimersByTime(500);
  expect(sockets).toHaveLength(5);
});

it("waits at most so long, with up to a half taken off", () => {
  expect(backoff(50, () => 0)).toBe(15_000);
  expect(backoff(50, () => 1)).toBe(7_500);
});

it("tries at once when told to, and never with two sockets", () => {
  const telemetry = made();
  telemetry.subscribe(() => undefined);
  sockets[0]?.onclose?.();
  telemetry.retryNow();
  expect(sockets).toHaveLength(2);
  vi.advanceTimersByTime(20_000);
  expect(sockets).toHaveLength(2);
});

it("measures the round trip while the page is seen, and takes silence for a loss", async () => {
  const telemetry = made();
  telemetry.subscribe(() => undefined);
  sockets[0]?.onopen?.();
  await vi.advanceTimersByTimeAsync(0);
  expect(telemetry.status()).toEqual({ state: "open", latency: 3, paused: false });
  ping = () => Promise.reject(new Error("nobody"));
  visible = false;
  await vi.advanceTimersByTimeAsync(60_000);
  expect(telemetry.status().state).toBe("open");
  visible = true;
  await vi.advanceTimersByTimeAsync(15_000);
  expect(telemetry.status()).toEqual({ state: "connecting", paused: false });
  expect(sockets[0]?.closed).toBe(true);
});

it("tells its watchers of changes alone", () => {
  const telemetry = made();
  const changed = vi.fn();
  telemetry.watch(changed);
  telemetry.setPaused(true);
  telemetry.setPaused(true);
  expect(changed).toHaveBeenCalledTimes(1);
  expect(telemetry.status().paused).toBe(true);
});
