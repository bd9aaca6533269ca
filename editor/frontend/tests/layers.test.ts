// Which folder may know which: each module imports from its own layer and those below it, and views know each other
// only by the modules named here.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { describe, expect, it } from "vitest";

const ROOT = join(import.meta.dirname, "../src");

/** Lowest first. A longer path goes before the folder that it is in. */
const LAYERS: readonly (readonly string[])[] = [
  // Words and records: what the service and the documents say, and the widgets that know neither.
  ["api/types", "document", "ui", "placement/schema.generated"],
  // Asking the service, listening to it; the placement as a document.
  ["api", "catalogue", "telemetry/frames", "telemetry/sequence", "telemetry/socket", "telemetry/sse"],
  ["placement/edits", "placement/follow", "placement/resolve"],
  ["store"],
  ["telemetry"],
  // An open document with all that follows the service.
  ["store/attach"],
  ["canvas", "panels", "tasks", "placement", "deploy", "play", "versions", "taps", "trace", "debug"],
  ["shell"],
  ["App", "styles"],
  // What mounts the application.
  ["shell/Root", "index"],
];

/** What views show of each other. */
const SHARED = [
  "canvas/dragging",
  "canvas/geometry",
  "canvas/model",
  "canvas/types",
  "debug/FailedInputs",
  "debug/UpTo",
  "debug/actions",
  "debug/arriving",
  "debug/breaks",
  "debug/marks",
  "debug/recorded",
  "debug/replay",
  "debug/state",
  "deploy/changed",
  "placement/bits",
  "placement/ranks",
  "taps/SampleView",
  "taps/looks",
  "taps/actions",
  "taps/cards",
  "taps/places",
  "taps/TapCard",
  "taps/standing",
  "taps/TapField",
  "taps/TapList",
  "trace/session",
  "versions/DiffList",
];

interface Module {
  /** Below `src`, without its ending. */
  path: string;
  text: string;
  imports: string[];
  /** Of packages. */
  packages: string[];
}

const endings = /\.tsx?$/;

function modules(): Module[] {
  const files = readdirSync(ROOT, { recursive: true, encoding: "utf8" }).filter((file) => endings.test(file));
  return files.map((file) => {
    const text = readFileSync(join(ROOT, file), "utf8");
    const named = [...text.matchAll(/(?:\bfrom|\bimport)\s*\(?\s*"([^"]+)"/g)].map((match) => match[1]!);
    const imports = named
      .filter((name) => name.startsWith(".") && !name.includes(".css"))
      .map((name) => relative(ROOT, join(ROOT, dirname(file), name)));
    return {
      path: file.replace(endings, ""),
      text,
      imports,
      packages: named.filter((name) => !name.startsWith(".")),
    };
  });
}

function isIn(path: string, place: string): boolean {
  return path === place || path.startsWith(`${place}/`);
}

/** By the longest place that holds it. */
function layerOf(path: string): number {
  const held = LAYERS.flatMap((places, layer) =>
    places.filter((place) => isIn(path, place)).map((place) => ({ layer, length: place.length })),
  );
  return held.sort((a, b) => b.length - a.length)[0]?.layer ?? -1;
}

const all = modules();
const VIEWS = LAYERS.findIndex((places) => places.includes("canvas"));

describe("layers", () => {
  it("hold every module", () => {
    expect(all.length).toBeGreaterThan(200);
    expect(all.map(({ path }) => path).filter((path) => layerOf(path) < 0 && path !== "css.d")).toEqual([]);
    const empty = LAYERS.flat().filter((place) => !all.some(({ path }) => isIn(path, place)));
    expect(empty).toEqual([]);
  });

  it("know nothing above them", () => {
    const above = all.flatMap(({ path, imports }) =>
      imports.filter((name) => layerOf(name) > layerOf(path)).map((name) => `${path} -> ${name}`),
    );
    expect(above).toEqual([]);
  });

  it("of views know others by what they share", () => {
    const folder = (path: string) => path.split("/", 1)[0]!;
    const across = all
      .filter(({ path }) => layerOf(path) === VIEWS)
      .flatMap(({ path, imports }) =>
        imports
          .filter((name) => layerOf(name) === VIEWS && folder(name) !== folder(path))
          .map((name) => ({ path, name })),
      );
    const hidden = across.filter(({ name }) => !SHARED.includes(name));
    expect(hidden.map(({ path, name }) => `${path} -> ${name}`)).toEqual([]);
    expect(SHARED.filter((name) => !across.some((found) => found.name === name))).toEqual([]);
    const knows = new Map<string, Set<string>>();
    for (const { path, name } of across)
      knows.set(folder(path), (knows.get(folder(path)) ?? new Set()).add(folder(name)));
    const reaches = (from: string, wanted: string, seen = new Set<string>()): boolean =>
      [...(knows.get(from) ?? [])].some(
        (next) => next === wanted || (!seen.has(next) && reaches(next, wanted, seen.add(next))),
      );
    expect([...knows.keys()].filter((view) => reaches(view, view))).toEqual([]);
  });
});

describe("pure modules", () => {
  const pure = all.filter(({ path, text }) => isIn(path, "document") || /^\/\/.*\bPure\b/.test(text.split("\n")[0]!));

  it("know neither React nor the page", () => {
    expect(pure.length).toBeGreaterThan(60);
    const views = pure.flatMap(({ path, packages }) =>
      packages.filter((name) => /^(react|react-dom|lucide-react|zustand)\b/.test(name)).map((name) => [path, name]),
    );
    expect(views).toEqual([]);
    const page = pure.filter(({ text }) => /\b(document\.createElement|window\.|localStorage|fetch\()/.test(text));
    expect(page.map(({ path }) => path)).toEqual([]);
  });
});
