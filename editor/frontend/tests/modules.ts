// Sources as modules that import each other, and what may be wrong with that: cycles, imports upwards, crowded folders.
// Every import counts, of values and of types, `import()` and `import("./x").T` too.
import { readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join, normalize } from "node:path";
import { parseAst } from "vite";

/** Path below `src`, with its ending -> text. */
export type Files = ReadonlyMap<string, string>;

export interface Module {
  /** Below `src`, with its ending. */
  path: string;
  text: string;
  /** Paths of the files that it imports, style sheets among them. */
  imports: string[];
  packages: string[];
  /** Relative imports that name no file, and dynamic ones whose name is computed. */
  unread: string[];
}

export function filesIn(root: string): Files {
  const found = readdirSync(root, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const paths = found.map((entry) => join(entry.parentPath, entry.name)).sort();
  return new Map(paths.map((path) => [path.slice(root.length + 1), readFileSync(path, "utf8")]));
}

export function modulesOf(files: Files): Module[] {
  return [...files].filter(([path]) => /\.tsx?$/.test(path)).map(([path, text]) => moduleOf(path, text, files));
}

function moduleOf(path: string, text: string, files: Files): Module {
  const module: Module = { path, text, imports: [], packages: [], unread: [] };
  for (const name of namesIn(text, path.endsWith("x") ? "tsx" : path.endsWith(".d.ts") ? "dts" : "ts")) {
    if (name === null) module.unread.push("a computed name");
    else if (!name.startsWith(".")) module.packages.push(name);
    else {
      const found = resolved(normalize(join(dirname(path), name.split("?", 1)[0]!)), files);
      if (found === undefined) module.unread.push(name);
      else module.imports.push(found);
    }
  }
  return module;
}

function resolved(path: string, files: Files): string | undefined {
  return [path, `${path}.ts`, `${path}.tsx`, `${path}/index.ts`, `${path}/index.tsx`].find((file) => files.has(file));
}

/** The names in a module's imports; null for a computed name. */
function namesIn(text: string, lang: "ts" | "tsx" | "dts"): (string | null)[] {
  const names: (string | null)[] = [];
  const visit = (node: unknown): void => {
    if (Array.isArray(node)) node.forEach(visit);
    else if (typeof node === "object" && node !== null) {
      const { type, source, expression } = node as Record<string, unknown>;
      if (typeof type === "string" && IMPORTING.has(type) && source) names.push(literal(source));
      if (type === "TSExternalModuleReference") names.push(literal(expression));
      Object.values(node).forEach(visit);
    }
  };
  visit(parseAst(text, { lang }));
  return names;
}

const IMPORTING = new Set([
  "ImportDeclaration",
  "ImportExpression",
  "ExportAllDeclaration",
  "ExportNamedDeclaration",
  "TSImportType",
]);

function literal(node: unknown): string | null {
  const { value } = node as { value?: unknown };
  return typeof value === "string" ? value : null;
}

export function folderOf(path: string): string {
  return dirname(path) === "." ? "" : dirname(path);
}

export type Graph = ReadonlyMap<string, ReadonlySet<string>>;

/** Who imports whom, among modules, or among what `place` makes of their paths; nothing imports itself. */
export function importsAmong(modules: readonly Module[], place = (path: string) => path): Graph {
  const graph = new Map<string, Set<string>>();
  for (const { path, imports } of modules) {
    const from = place(path);
    const known = graph.get(from) ?? new Set<string>();
    for (const to of imports.map(place)) if (to !== from) known.add(to);
    graph.set(from, known);
  }
  return graph;
}

/** Groups that all reach one another. */
export function cyclesIn(graph: Graph): string[][] {
  const reached = new Map([...graph.keys()].map((name) => [name, reachedFrom(graph, name)]));
  const groups = new Map<string, string[]>();
  for (const [name, seen] of reached) {
    if (!seen.has(name)) continue;
    const group = [...seen].filter((other) => reached.get(other)?.has(name)).sort();
    groups.set(group[0]!, group);
  }
  return [...groups.values()];
}

function reachedFrom(graph: Graph, name: string): Set<string> {
  const seen = new Set<string>();
  const open = [...(graph.get(name) ?? [])];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (seen.has(next)) continue;
    seen.add(next);
    open.push(...(graph.get(next) ?? []));
  }
  return seen;
}

/** Rows of folders, the lowest first: a folder knows those of lower rows. */
export type Rows = readonly (readonly string[])[];

export interface Order {
  /** Folders of `src`; "" for the modules beside them. */
  folders: Rows;
  /** Folders inside of a folder; "" for the modules beside them. */
  inside: Readonly<Record<string, Rows>>;
}

/** Imports that do not go down, and folders that have no place in the order. */
export function upward(modules: readonly Module[], order: Order): string[] {
  const wrong = modules.flatMap(({ path, imports }) =>
    imports.filter((to) => !isBelow(to, path, order)).map((to) => `${path} -> ${to}`),
  );
  const placeless = modules.filter(({ path }) => placeOf(path, order).includes(-1));
  return [...placeless.map(({ path }) => `${path} has no place`), ...wrong];
}

function isBelow(to: string, from: string, order: Order): boolean {
  if (folderOf(to) === folderOf(from)) return true;
  const [outerTo, innerTo] = placeOf(to, order);
  const [outerFrom, innerFrom] = placeOf(from, order);
  return top(to) === top(from) ? innerTo < innerFrom : outerTo < outerFrom;
}

/** The row of the outer folder, and the row inside of it. */
function placeOf(path: string, order: Order): [number, number] {
  const outer = top(path);
  const row = (rows: Rows, folder: string) => rows.findIndex((folders) => folders.includes(folder));
  const inner = folderOf(path).slice(outer.length + 1);
  return [row(order.folders, outer), row(order.inside[outer] ?? [[""]], inner)];
}

export function top(path: string): string {
  return path.includes("/") ? path.split("/", 1)[0]! : "";
}

/** Folders that hold more files than this, whatever their kind. */
export function crowded(paths: readonly string[], most: number): string[] {
  const counts = new Map<string, number>();
  for (const path of paths) counts.set(folderOf(path), (counts.get(folderOf(path)) ?? 0) + 1);
  return [...counts].filter(([, count]) => count > most).map(([folder, count]) => `${folder}: ${count}`);
}

export function stem(path: string): string {
  return join(dirname(path), basename(path).replace(/\.tsx?$/, ""));
}
