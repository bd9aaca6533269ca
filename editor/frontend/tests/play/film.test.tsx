// @vitest-environment jsdom
import { flushSync } from "react-dom";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Film } from "../../src/play/outputs/Film";
import type { OutputShown } from "../../src/play/model/types";

let root: Root;
let host: HTMLElement;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  vi.stubGlobal("matchMedia", () => ({ matches: false }));
  host = document.createElement("div");
  root = createRoot(host);
});

afterEach(() => {
  flushSync(() => root.unmount());
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

/** Pictures that came 100 ms apart. */
const film = (count: number): OutputShown => ({
  name: "film",
  text: "",
  passes: [],
  left: 0,
  made: Array.from({ length: count }, (_, index) => ({
    index,
    iteration: [index],
    value: { type: "image", mime: "image/png", data: btoa(`picture ${index + 1}`) },
    at: 100 * index,
  })),
});

const show = (count: number, over: boolean, onSave = vi.fn()) =>
  flushSync(() => root.render(<Film output={film(count)} over={over} onSave={onSave} uses={[]} />));
const shown = () => atob(host.querySelector("img")!.src.split(",")[1]!);
/** Until what a timer changed is drawn, and the next one waits. */
const drawn = async () => {
  for (let turn = 0; turn < 4; turn += 1) await new Promise(setImmediate);
};
const pass = async (ms: number) => {
  vi.advanceTimersByTime(ms);
  await drawn();
};
const button = (name: string) => host.querySelector<HTMLButtonElement>(`button[aria-label^="${name}"]`);

it("is the newest picture while more come", async () => {
  show(1, false);
  expect(shown()).toBe("picture 1");
  show(3, false);
  await pass(5000);
  expect(shown()).toBe("picture 3");
  expect(host.textContent).toContain("live, picture 3");
  expect(button("Pause")).toBeNull();
});

it("stands at its end for a while, then goes on at its pace, over and over", async () => {
  show(3, false);
  show(3, true);
  await pass(1199);
  expect(shown()).toBe("picture 3");
  let seen = "";
  for (const ms of [1, 100, 100, 1199, 1]) {
    await pass(ms);
    seen += shown().at(-1);
  }
  expect(seen).toBe("12331");
});

it("begins at its beginning where it was over before it was opened", async () => {
  show(3, true);
  expect(shown()).toBe("picture 1");
  await pass(100);
  expect(shown()).toBe("picture 2");
});

it("stays where it is paused, and at what is chosen", async () => {
  show(3, true);
  flushSync(() => button("Pause")!.click());
  await pass(5000);
  expect(shown()).toBe("picture 1");
  const slider = host.querySelector("input")!;
  flushSync(() => {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")!.set!.call(slider, "1");
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  });
  await pass(5000);
  expect(shown()).toBe("picture 2");
  flushSync(() => button("Play")!.click());
  await pass(100);
  expect(shown()).toBe("picture 3");
});

it("moves by itself for nobody who asked for less motion", async () => {
  vi.stubGlobal("matchMedia", () => ({ matches: true }));
  show(3, true);
  await pass(5000);
  expect(shown()).toBe("picture 3");
});

it("hands the picture that is shown to be saved", () => {
  const onSave = vi.fn();
  show(3, true, onSave);
  flushSync(() => button("Download picture 1")!.click());
  expect(onSave.mock.calls[0]![1]).toMatchObject({ index: 0 });
});
