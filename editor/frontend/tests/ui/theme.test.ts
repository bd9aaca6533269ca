import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

const ROOT = join(import.meta.dirname, "../../src");
const theme = readFileSync(join(ROOT, "ui/theme.css"), "utf8");

/** Name -> colour, of the first rule with this selector. */
function tokens(selector: string): Map<string, string> {
  const rule = theme.slice(theme.indexOf(`${selector} {`)).split("}", 1)[0]!;
  return new Map([...rule.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map((match) => [match[1]!, match[2]!]));
}

function luminance(color: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(a: string, b: string): number {
  const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

/** Streamlit's background and its second one. */
const THEMES = [
  { selector: ".wg", grounds: ["#ffffff", "#f0f2f6"] },
  { selector: ".wg.dark", grounds: ["#0e1117", "#262730"] },
];
const WORDS = ["bad", "warn", "good", "busy", "rank-0", "rank-1", "rank-2", "rank-3"];

describe.each(THEMES)("$selector", ({ selector, grounds }) => {
  const found = tokens(selector);
  const weak = (names: Iterable<string>, least: number) =>
    [...names].filter((name) => grounds.some((ground) => contrast(found.get(name)!, ground) < least));

  it("has colours that words can be read in", () => {
    expect(weak(WORDS, 4.5)).toEqual([]);
  });

  it("has signs that stand out", () => {
    const signs = [...found.keys()].filter((name) => /^(m|rank|part)-/.test(name));
    expect(signs.length).toBeGreaterThan(25);
    expect(weak(signs, 3)).toEqual([]);
  });
});

it("the theme alone has colours of its own", () => {
  const sheets = readdirSync(ROOT, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".css"));
  const own = sheets
    .filter((file) => file !== join("ui", "theme.css"))
    .flatMap((file) => {
      const css = readFileSync(join(ROOT, file), "utf8");
      return [...css.matchAll(/#[0-9a-f]{3,8}\b(?=[;\s,)])/gi)].map((match) => `${file}: ${match[0]}`);
    });
  expect(own).toEqual([]);
});

it("a sheet is short enough to know one's way in it", () => {
  const sheets = readdirSync(ROOT, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".css"));
  const long = sheets.filter((file) => readFileSync(join(ROOT, file), "utf8").split("\n").length > 451);
  expect(long).toEqual([]);
});
