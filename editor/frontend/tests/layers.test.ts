// Which folder may know which: a module imports from its own folder and from lower ones, views know each other only by
// the modules that are named here, nothing imports itself by way of others, and folders stay small.
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { crowded, cyclesIn, filesIn, importsAmong, modulesOf, stem, top, upward, type Order } from "./modules";

/** Lowest first. */
const ORDER: Order = {
  folders: [
    // Sentences and labels of the page.
    ["strings"],
    // Types of the service's messages; widgets and texts that know no document.
    ["messages", "ui"],
    // Graph and placement as data.
    ["document"],
    // Asking the service, listening to it.
    ["api"],
    ["catalogue", "telemetry"],
    ["store"],
    // An open document with all that follows the service.
    ["session"],
    // Views.
    ["placement", "tasks", "taps", "versions"],
    ["debug", "deploy"],
    ["canvas", "trace"],
    ["panels", "play"],
    // The page around them.
    ["shell"],
    // The entry point of the application.
    [""],
  ],
  inside: {
    document: [[""], ["placement", "edits/parts", "blueprints"], ["edits"]],
    placement: [["model"], ["board"], [""]],
    tasks: [["model"], ["cells"], ["request", "steps"], ["simulator"], [""]],
    debug: [["model"], [""]],
    canvas: [["shapes"], ["layout"], ["model"], ["edges"], ["gestures"], ["nodes", "flow", "quick"], [""]],
    trace: [["model"], ["picture"], [""]],
    panels: [
      ["common"],
      ["inspector/fields"],
      ["inspector/forms"],
      ["inspector"],
      ["palette", "outline", "problems", "commands"],
      [""],
    ],
    play: [["model"], ["files"], ["runs"], ["form", "outputs", "calls"], [""]],
    shell: [["host", "frame"], ["bar", "dialogs", "pages"], [""]],
  },
};

const VIEWS = ORDER.folders.slice(7, 11).flat();

/** The modules that views may use of each other. */
const SHARED = [
  "canvas/gestures/blueprints",
  "canvas/gestures/dragging",
  "canvas/model/model",
  "canvas/shapes/geometry",
  "canvas/shapes/types",
  "debug/FailedInputs",
  "debug/UpTo",
  "debug/marks",
  "debug/model/actions",
  "debug/model/arriving",
  "debug/model/breaks",
  "debug/model/recorded",
  "debug/model/replay",
  "debug/model/state",
  "deploy/changed",
  "placement/board/bits",
  "placement/model/ranks",
  "taps/SampleView",
  "taps/looks",
  "taps/actions",
  "taps/cards",
  "taps/places",
  "taps/TapCard",
  "taps/standing",
  "taps/TapField",
  "taps/TapList",
  "tasks/model/bindings",
  "tasks/model/outputs",
  "tasks/model/rows",
  "trace/model/session",
  "versions/DiffList",
];

/** Files of one folder, style sheets counted; tests are in `tests`, by the name of the folder that they test. */
const MOST = 15;

const files = filesIn(join(import.meta.dirname, "../src"));
const all = modulesOf(files);

describe("imports", () => {
  it("are all read", () => {
    expect(all.length).toBeGreaterThan(200);
    expect(all.flatMap(({ path, unread }) => unread.map((name) => `${path}: ${name}`))).toEqual([]);
  });

  it("make no cycle, neither of modules nor of folders", () => {
    expect(cyclesIn(importsAmong(all))).toEqual([]);
    expect(cyclesIn(importsAmong(all, top))).toEqual([]);
    expect(cyclesIn(importsAmong(all, (path) => path.slice(0, path.lastIndexOf("/") + 1)))).toEqual([]);
  });

  it("go down", () => {
    expect(upward(all, ORDER)).toEqual([]);
  });

  it("of views know others by what they share", () => {
    const across = all.flatMap(({ path, imports }) =>
      imports
        .filter((to) => VIEWS.includes(top(path)) && VIEWS.includes(top(to)) && top(to) !== top(path))
        .map((to) => ({ path, to: stem(to) })),
    );
    const hidden = across.filter(({ to }) => !SHARED.includes(to));
    expect(hidden.map(({ path, to }) => `${path} -> ${to}`)).toEqual([]);
    expect(SHARED.filter((name) => !across.some(({ to }) => to === name))).toEqual([]);
  });
});

describe("folders", () => {
  it("hold few files", () => {
    expect(crowded([...files.keys()], MOST)).toEqual([]);
    expect(crowded([...filesIn(import.meta.dirname).keys()], MOST)).toEqual([]);
  });

  it("of sources hold no tests", () => {
    expect([...files.keys()].filter((path) => /\.test\./.test(path))).toEqual([]);
  });

  it("that the order names are there", () => {
    const inner = Object.entries(ORDER.inside).flatMap(([outer, rows]) =>
      rows.flat().map((folder) => (folder ? `${outer}/${folder}/` : `${outer}/`)),
    );
    const named = [...ORDER.folders.flat().flatMap((folder) => (folder ? [`${folder}/`] : [])), ...inner];
    expect(named.filter((folder) => ![...files.keys()].some((path) => path.startsWith(folder)))).toEqual([]);
  });
});

describe("pure modules", () => {
  const pure = all.filter(
    ({ path, text }) => top(path) === "document" || /^\/\/.*\bPure\b/.test(text.split("\n")[0]!),
  );

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

/** Small sources with a fault each, so that the rules above are known to find it. */
describe("planted faults", () => {
  const order: Order = { folders: [["low"], ["view"], [""]], inside: { view: [["model"], [""]] } };
  const planted = (sources: Record<string, string>) => modulesOf(new Map(Object.entries(sources)));
  const back = { "low/b.ts": 'import { a } from "./a";\nexport const b = a;' };

  it.each([
    ["plain", 'import { b } from "./b";'],
    ["for its effect", 'import "./b";'],
    ["over several lines", 'import {\n  b,\n} from "./b";'],
    ["exported again", 'export * from "./b";'],
    ["exported by name", 'export { b } from "./b";'],
    ["of a type", 'import type { B } from "./b";'],
    ["of a type among values", 'import { type B } from "./b";'],
    ["of a type in place", 'export type A = import("./b").B;'],
    ["of a module's type", 'export type A = typeof import("./b");'],
    ["dynamic", 'export const a = () => import("./b");'],
    ["in single quotes", "import { b } from './b';"],
    ["by `require`", 'import b = require("./b");'],
  ])("a cycle by an import %s", (_, text) => {
    const found = planted({ "low/a.tsx": text, ...back });
    expect(cyclesIn(importsAmong(found))).toEqual([["low/a.tsx", "low/b.ts"]]);
  });

  it("no cycle by words that look like an import", () => {
    const text = 'const a = \'import "./b"\';\n// import { b } from "./b";\nexport { a };';
    expect(cyclesIn(importsAmong(planted({ "low/a.ts": text, ...back })))).toEqual([]);
  });

  it("a cycle by way of a third", () => {
    const found = planted({
      "low/a.ts": 'import type { B } from "./b";',
      "low/b.ts": 'export const b = import("./c");',
      "low/c/index.ts": 'export * from "../a";',
      "low/d.ts": 'import "./a";',
    });
    expect(cyclesIn(importsAmong(found))).toEqual([["low/a.ts", "low/b.ts", "low/c/index.ts"]]);
  });

  it("folders that know each other both ways", () => {
    const found = planted({
      "low/a.ts": 'import type { C } from "../view/c";',
      "low/b.ts": "",
      "view/c.ts": "",
      "view/d.ts": 'import "../low/b";',
    });
    expect(cyclesIn(importsAmong(found))).toEqual([]);
    expect(cyclesIn(importsAmong(found, top))).toEqual([["low", "view"]]);
  });

  it.each([
    ["of a folder", "low/a.ts", 'import { c } from "../view/c";', "low/a.ts -> view/c.ts"],
    ["of a type", "low/a.ts", 'import type { C } from "../view/c";', "low/a.ts -> view/c.ts"],
    ["dynamic", "low/a.ts", 'void import("../view/c");', "low/a.ts -> view/c.ts"],
    ["of a style sheet", "low/a.ts", 'import css from "../view/c.css?inline";', "low/a.ts -> view/c.css"],
    ["inside of a folder", "view/model/a.ts", 'import { c } from "../c";', "view/model/a.ts -> view/c.ts"],
  ])("an import upwards %s", (_, path, text, wrong) => {
    const sources = { [path]: text, "view/c.ts": "", "view/c.css": "", "index.ts": 'import "./view/c";' };
    expect(upward(planted(sources), order)).toEqual([wrong]);
  });

  it("a folder without a place, a name that is computed, a file that is not there", () => {
    const found = planted({
      "new/a.ts": "",
      "low/b.ts": 'import "./gone";\nexport const load = (name: string) => import(name);',
    });
    expect(upward(found, order)).toEqual(["new/a.ts has no place"]);
    expect(found.flatMap(({ unread }) => unread)).toEqual(["./gone", "a computed name"]);
  });

  it("a crowded folder, its style sheets counted", () => {
    const paths = [...Array(MOST).keys()].map((index) => `low/${index}.ts`);
    expect(crowded(paths, MOST)).toEqual([]);
    expect(crowded([...paths, "low/sub/a.ts"], MOST)).toEqual([]);
    expect(crowded([...paths, "low/a.css"], MOST)).toEqual([`low: ${MOST + 1}`]);
  });
});
