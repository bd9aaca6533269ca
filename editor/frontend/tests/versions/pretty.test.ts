import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "../../src/document/json";
import { pretty } from "../../src/versions/pretty";

const GRAPHS = join(__dirname, "../../../../graphs");
const files = readdirSync(GRAPHS).filter((file) => file.endsWith(".json"));

describe("the bundled graphs", () => {
  test("are there", () => expect(files.length).toBeGreaterThanOrEqual(5));
  test.each(files)("%s is written back byte for byte", (file) => {
    const text = readFileSync(join(GRAPHS, file), "utf8");
    const { value, sources } = parse(text);
    expect(`${pretty(value, sources)}\n`).toBe(text);
  });
});

test("what is flat and fits stands on one line, an object with air", () => {
  expect(pretty({ a: [1, 2], b: {} })).toBe('{ "a": [1, 2], "b": {} }');
  expect(pretty({ a: { b: { c: 1 } } })).toBe('{\n  "a": { "b": {"c": 1} }\n}');
});

test("a list of flat numbers may be 118 wide, a list of lists 80", () => {
  const long = "x".repeat(40);
  expect(pretty([long, long])).toBe(`["${long}", "${long}"]`);
  expect(pretty([[long], [long]])).toBe(`[\n  ["${long}"],\n  ["${long}"]\n]`);
});

test("the key before takes its columns", () => {
  const text = "y".repeat(100);
  expect(pretty({ k: [text], l: { m: { n: {} } } })).toContain(`"k": ["${text}"]`);
  expect(pretty({ longer_key_here: [text], l: { m: { n: {} } } })).toContain(`"longer_key_here": [\n    "${text}"`);
});

test("a wide character is one column", () => {
  const text = "😀".repeat(110);
  expect(pretty([text])).toBe(`["${text}"]`);
});

test("numbers: as written while unchanged, as Python writes them otherwise", () => {
  const { value, sources } = parse('{"a": 4.0, "b": 1e3}');
  expect(pretty(value, sources)).toBe('{ "a": 4.0, "b": 1e3 }');
  expect(pretty({ a: 5, b: 1000 }, sources)).toBe('{ "a": 5, "b": 1e3 }');
  expect(pretty([1e-5, 0.0001, 1e21, 1.5e-9])).toBe("[1e-05, 0.0001, 1000000000000000000000, 1.5e-09]");
});

test("what isn't set isn't written", () => {
  expect(pretty({ a: undefined, b: 1 })).toBe('{ "b": 1 }');
  expect(pretty({ a: undefined })).toBe("{}");
});
