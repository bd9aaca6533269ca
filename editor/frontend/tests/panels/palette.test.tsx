// @vitest-environment jsdom
import { flushSync } from "react-dom";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, it } from "vitest";
import { receive, type Payload } from "../../src/canvas/gestures/dragging";
import { Palette } from "../../src/panels/palette/Palette";
import { Editor } from "../../src/store/editor";
import { EditorContext } from "../../src/store/react";
import { catalogue } from "./components";

let root: Root;
let home: HTMLElement;
let added: Payload[];
let leave: () => void;

beforeEach(() => {
  home = document.body.appendChild(document.createElement("div"));
  root = createRoot(home);
  added = [];
  leave = receive({
    over: () => null,
    drop: () => undefined,
    leave: () => undefined,
    atCentre: (payload) => added.push(payload),
  });
  const graph = { name: "g", walks: { w: { body: [] } } };
  const declared = {
    ...catalogue,
    "flow.noise": { ...catalogue["flow.noise"]!, category: "Sampling" },
    "bagel.vae_decoder": { ...catalogue["bagel.vae_decoder"]!, category: "Picture" },
    "bagel.vae_encoder": { ...catalogue["bagel.vae_encoder"]!, category: "Model" },
  };
  const editor = new Editor("g", { graph, placement: null }, declared);
  flushSync(() =>
    root.render(
      <EditorContext value={editor}>
        <Palette />
      </EditorContext>,
    ),
  );
});

afterEach(() => {
  leave();
  flushSync(() => root.unmount());
  home.remove();
});

it("adds what was typed, though the list isn't there yet", () => {
  const input = home.querySelector("input")!;
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")!.set!.call(input, "frame");
  flushSync(() => void input.dispatchEvent(new Event("input", { bubbles: true })));
  expect(home.querySelectorAll("[role=option]").length).toBeGreaterThan(1);
  flushSync(() => void input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true })));
  expect(added).toEqual([{ kind: "frame" }]);
});

it("names the family of what stands under a heading of what it does", () => {
  const rows = (heading: string) =>
    [...home.querySelectorAll(`[role=group][aria-label="${heading}"] .title`)].map((row) => row.textContent);
  expect(rows("Sampling")).toEqual(["noiseflow"]);
  expect(rows("text")).toEqual(["tokenizer"]);
});

it("goes to a category by its button, and gives each component a tile", () => {
  const seen: string[] = [];
  Element.prototype.scrollIntoView = function (this: Element) {
    seen.push(this.getAttribute("aria-label") ?? "");
  };
  const shelf = home.querySelector("[role=navigation], nav")!;
  const buttons = [...shelf.querySelectorAll("button")];
  // Groups that are no category have none.
  expect(buttons.map((button) => button.title)).toEqual(["Picture", "Model"]);
  flushSync(() => buttons[1]!.click());
  expect(seen).toEqual(["Model"]);
  const rows = [...home.querySelectorAll("[role=option]")];
  expect(rows.filter((row) => row.querySelectorAll(".wg-tile > svg").length !== 1)).toEqual([]);
});
