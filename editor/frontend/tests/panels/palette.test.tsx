// @vitest-environment jsdom
import { flushSync } from "react-dom";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, it } from "vitest";
import { receive, type Payload } from "../../src/canvas/gestures/dragging";
import { Palette } from "../../src/panels/palette/Palette";
import { Editor } from "../../src/store/editor";
import { EditorContext } from "../../src/store/react";

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
  const editor = new Editor("g", { graph: { name: "g", walks: { w: { body: [] } } }, placement: null });
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
