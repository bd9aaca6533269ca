import { expect, test } from "vitest";
import { highlight } from "../../src/versions/highlight";
import { readPasted } from "../../src/versions/pasted";

const joined = (text: string, language: "json" | "python") =>
  highlight(text, language)
    .map((line) => line.map((token) => token.text).join(""))
    .join("\n");

test("tokens put together again are the text", () => {
  for (const text of ['{ "a": [1, -2.5e3, true],\n\n "b\\"": null }\n', '{"never closed', ""])
    expect(joined(text, "json")).toBe(text);
  const python = 'from x import y\n\ndef f(a=1):\n    """Two\n    lines."""\n    return f"s" + \'t\'  # why\n';
  expect(joined(python, "python")).toBe(python);
});

test("keys are told from texts", () => {
  const [line] = highlight('"a": "b", "c": 1', "json");
  expect(line?.filter((token) => token.kind === "key").map((token) => token.text)).toEqual(['"a"', '"c"']);
  expect(line?.filter((token) => token.kind === "text").map((token) => token.text)).toEqual(['"b"']);
});

test("a Python text over lines is coloured on each of them", () => {
  const lines = highlight('a = """x\ny"""', "python");
  expect(lines[1]).toEqual([{ kind: "text", text: 'y"""' }]);
});

test("pasted JSON keeps how numbers are written", () => {
  const read = readPasted('{"name": "g", "nodes": {"a": {"component": "x.y", "params": {"scale": 4.0}}}}');
  expect(read.ok && [...read.sources]).toEqual([["/nodes/a/params/scale", "4.0"]]);
});

test("broken JSON says its line", () => {
  const read = readPasted('{\n  "name": "g",\n  "nodes": {,}\n}');
  expect(read).toMatchObject({ ok: false, line: 3 });
  expect(read.ok === false && read.message).not.toMatch(/position/);
});

test("a key twice is refused, with its line", () => {
  expect(readPasted('{\n"name": "g",\n"name": "h"}')).toMatchObject({ ok: false, line: 3 });
});

test("what is no graph is refused before it reaches the editor", () => {
  expect(readPasted("[]")).toMatchObject({ ok: false });
  expect(readPasted("  ")).toMatchObject({ ok: false });
  expect(readPasted('{\n"name": "g",\n"walks": []}')).toMatchObject({ ok: false, line: 3 });
});
