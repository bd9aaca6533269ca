// @vitest-environment jsdom
import { flushSync as act } from "react-dom";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { NumberField, TextField } from "../../src/panels/inspector/fields/fields";
import { ParamField } from "../../src/panels/inspector/fields/ParamField";

let root: Root;
let home: HTMLElement;

beforeEach(() => {
  home = document.body.appendChild(document.createElement("div"));
  root = createRoot(home);
});

afterEach(() => {
  act(() => root.unmount());
  home.remove();
});

const input = () => home.querySelector("input")!;

function type(text: string) {
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")!.set!;
  act(() => {
    set.call(input(), text);
    input().dispatchEvent(new Event("input", { bubbles: true }));
  });
}

function press(key: string, held: { ctrlKey?: boolean } = {}) {
  act(() => void input().dispatchEvent(new KeyboardEvent("keydown", { key, ...held, bubbles: true })));
}

describe("a field", () => {
  it("enters at Enter, and keeps what is refused with the reason", () => {
    const onNumber = vi.fn(() => null);
    act(() => root.render(<NumberField label="n" value={4} integer max={8} onNumber={onNumber} />));
    type("9");
    expect(onNumber).not.toHaveBeenCalled();
    press("Enter");
    expect(onNumber).not.toHaveBeenCalled();
    expect(home.querySelector("[role=alert]")!.textContent).toBe("It must be at most 8.");
    expect(input().value).toBe("9");
    type("7");
    press("Enter");
    expect(onNumber).toHaveBeenCalledExactlyOnceWith(7);
  });

  it("enters at Ctrl+Enter and leaves the key to the page, unless the text is refused", () => {
    const onNumber = vi.fn(() => null);
    const heard = vi.fn();
    const field = <NumberField label="n" value={4} max={8} onNumber={onNumber} />;
    act(() => root.render(<div onKeyDown={({ key, ctrlKey }) => heard(key, ctrlKey)}>{field}</div>));
    type("9");
    press("Enter", { ctrlKey: true });
    expect(heard).not.toHaveBeenCalled();
    type("7");
    press("Enter", { ctrlKey: true });
    expect(onNumber).toHaveBeenCalledExactlyOnceWith(7);
    expect(heard).toHaveBeenCalledExactlyOnceWith("Enter", true);
  });

  it("takes an expression with or without the sign that stands before the field", () => {
    const onEnter = vi.fn(() => null);
    const declared = { type: "number", default: 1, choices: [], min: null, max: null, description: "" };
    const shared = { name: "scale", scope: [], problems: [], onEnter };
    act(() => root.render(<ParamField {...shared} declared={declared as never} value="=steps" />));
    for (const text of ["= steps + 1", "steps + 2", "=="]) {
      type(text);
      press("Enter");
    }
    expect(onEnter.mock.calls).toEqual([["=steps + 1"], ["=steps + 2"], ["==="]]);
  });

  it("takes what was typed when it goes away, once", () => {
    const onEnter = vi.fn(() => null);
    act(() => root.render(<TextField label="t" value="a" onEnter={onEnter} />));
    type("b");
    act(() => root.render(<p />));
    expect(onEnter).toHaveBeenCalledExactlyOnceWith("b");
  });

  it("forgets at Escape what was typed", () => {
    const onEnter = vi.fn(() => null);
    act(() => root.render(<TextField label="t" value="a" onEnter={onEnter} />));
    type("b");
    press("Escape");
    expect(input().value).toBe("a");
    act(() => root.render(<p />));
    expect(onEnter).not.toHaveBeenCalled();
  });

  it("completes a name with Tab, and shows the value of an expression for the defaults", () => {
    const scope = [
      { name: "shift", about: "", value: 3 },
      { name: "steps", about: "", value: 50 },
      { name: "flow_time(", about: "" },
    ];
    act(() => root.render(<TextField label="t" value="" scope={scope} onEnter={() => null} />));
    type("2 * st");
    expect([...home.querySelectorAll(".scope button")].map((button) => button.textContent)).toEqual(["steps"]);
    press("Tab");
    expect(input().value).toBe("2 * steps");
    expect(home.querySelector(".expression-value b")!.textContent).toBe("100");
    type("2 * stop");
    press("Tab");
    expect(input().value).toBe("2 * stop");
    expect(home.querySelector(".expression-value")).toBeNull();
  });

  it("enters free text at every keystroke", () => {
    const onEnter = vi.fn(() => null);
    act(() => root.render(<TextField label="t" value="a" live onEnter={onEnter} />));
    type("ab");
    expect(onEnter).toHaveBeenLastCalledWith("ab");
  });
});
