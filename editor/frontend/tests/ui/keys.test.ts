// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { CANVAS_KEYS } from "../../src/canvas/keyboard";
import { actionOf, BINDINGS, chordOf, hint, isTyping, shown, taken, type Pressed } from "../../src/ui/keys";

const pressed = (key: string, more: Partial<Pressed> = {}): Pressed => ({
  key,
  code: "",
  ctrlKey: false,
  metaKey: false,
  shiftKey: false,
  altKey: false,
  ...more,
});

describe("chords", () => {
  it.each([
    [pressed("z", { ctrlKey: true }), "Mod+Z"],
    [pressed("Z", { ctrlKey: true, shiftKey: true }), "Mod+Shift+Z"],
    [pressed("?", { shiftKey: true }), "?"],
    [pressed("¡", { altKey: true, code: "Digit1" }), "Alt+1"],
    [pressed(" "), "Space"],
    [pressed("Enter", { ctrlKey: true }), "Mod+Enter"],
    [pressed("Shift", { shiftKey: true }), null],
  ])("%o is %s", (event, chord) => expect(chordOf(event, false)).toBe(chord));

  it("Cmd stands for Ctrl on a Mac alone", () => {
    expect(chordOf(pressed("z", { metaKey: true }), true)).toBe("Mod+Z");
    expect(chordOf(pressed("z", { metaKey: true }), false)).toBe("Z");
    expect(shown("Mod+Shift+Z", true)).toBe("⇧⌘Z");
    expect(shown("Mod+Shift+Z", false)).toBe("Ctrl+Shift+Z");
  });
});

describe("actions", () => {
  it("no chord does two things, on the canvas neither", () => {
    const chords = [...BINDINGS, ...CANVAS_KEYS].flatMap((binding) => binding.keys);
    expect(new Set(chords).size).toBe(chords.length);
  });

  it("what is typed stays text, but a version can be saved and anything found", () => {
    expect(actionOf("?", true)).toBeNull();
    expect(actionOf("Mod+Z", true)).toBeNull();
    expect(actionOf("Mod+S", true)).toBe("version");
    expect(actionOf("?", false)).toBe("sheet");
  });

  it("the user's own keys replace the given ones, and a plain one doesn't fire in a text", () => {
    const overrides = { find: ["J"] };
    expect(actionOf("Mod+K", false, overrides)).toBeNull();
    expect(actionOf("J", false, overrides)).toBe("find");
    expect(actionOf("J", true, overrides)).toBeNull();
    expect(hint("find", overrides)).toBe("J");
    expect(taken("J", "run", overrides)?.action).toBe("find");
    expect(taken("J", "find", overrides)).toBeNull();
    expect(taken("Mod+K", "run", overrides)).toBeNull();
  });

  it("knows where a text is typed", () => {
    const element = (html: string) => {
      document.body.innerHTML = html;
      return [document.body.firstElementChild!];
    };
    expect(isTyping(element("<input>"))).toBe(true);
    expect(isTyping(element("<textarea></textarea>"))).toBe(true);
    expect(isTyping(element("<input type=checkbox>"))).toBe(false);
    expect(isTyping(element("<button></button>"))).toBe(false);
  });
});
