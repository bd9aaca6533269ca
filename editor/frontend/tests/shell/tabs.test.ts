import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Tabs, type Channel, type TabMessage } from "../../src/session/tabs";

/** Channels of one name in one process. */
class Bus {
  private readonly ends = new Set<Channel>();
  readonly open = (): Channel => {
    const end: Channel = {
      onmessage: null,
      postMessage: (message: TabMessage) => {
        for (const other of this.ends)
          if (other !== end) queueMicrotask(() => other.onmessage?.({ data: message } as MessageEvent<TabMessage>));
      },
      close: () => this.ends.delete(end),
    };
    this.ends.add(end);
    return end;
  };
}

let bus: Bus;

function tab(savesFor = 0) {
  const seen: string[] = [];
  const events = {
    reading: (reason: string) => seen.push(`reading: ${reason}`),
    editing: () => seen.push("editing"),
    saved: () => seen.push("saved"),
    flush: async () => {
      seen.push("flush");
      if (savesFor > 0) await new Promise((resolve) => setTimeout(resolve, savesFor));
    },
  };
  return { seen, tabs: new Tabs(bus.open, events) };
}

const settle = (ms = 1) => vi.advanceTimersByTimeAsync(ms);

beforeEach(() => {
  vi.useFakeTimers();
  bus = new Bus();
});
afterEach(() => void vi.useRealTimers());

describe("tabs of one document", () => {
  it("the second one reads and hears of saves", async () => {
    const [a, b] = [tab(), tab()];
    a.tabs.start();
    await settle(10);
    b.tabs.start();
    await settle();
    expect(b.seen).toEqual(["reading: This document is open in another tab."]);
    expect(b.tabs.isEditing).toBe(false);
    a.tabs.saved();
    await settle();
    expect(b.seen.at(-1)).toBe("saved");
    expect(a.seen).toEqual([]);
  });

  it("hands over: the first saves, then reads; the second edits after that", async () => {
    const [a, b] = [tab(), tab()];
    a.tabs.start();
    await settle(10);
    b.tabs.start();
    await settle();
    await b.tabs.take();
    expect(a.seen).toEqual(["flush", "reading: Another tab edits this document now."]);
    expect(b.seen.at(-1)).toBe("editing");
    expect([a.tabs.isEditing, b.tabs.isEditing]).toEqual([false, true]);
    await a.tabs.take();
    expect([a.tabs.isEditing, b.tabs.isEditing]).toEqual([true, false]);
  });

  it("takes over from a tab that sleeps", async () => {
    const [a, b] = [tab(), tab()];
    a.tabs.start();
    await settle(10);
    b.tabs.start();
    await settle();
    a.tabs.stop();
    await settle();
    expect(b.seen.at(-1)).toBe("reading: The tab that edited this document is closed.");
    const taken = b.tabs.take();
    await settle(1000);
    await taken;
    expect(b.seen.at(-1)).toBe("editing");
  });

  it("hears of what a slow tab saved after it was taken over", async () => {
    const [a, b] = [tab(3000), tab()];
    a.tabs.start();
    await settle(10);
    b.tabs.start();
    await settle();
    const taken = b.tabs.take();
    await settle(1000);
    await taken;
    expect(b.seen.at(-1)).toBe("editing");
    await settle(3000);
    expect(a.seen).toEqual(["flush", "reading: Another tab edits this document now."]);
    expect(b.seen.at(-1)).toBe("saved");
    expect([a.tabs.isEditing, b.tabs.isEditing]).toEqual([false, true]);
  });

  it("of two that start at once exactly one edits", async () => {
    const all = [tab(), tab(), tab()];
    for (const each of all) each.tabs.start();
    await settle(10);
    expect(all.filter((each) => each.tabs.isEditing)).toHaveLength(1);
  });
});
