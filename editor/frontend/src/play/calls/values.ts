// The parts of a call in any language: its values, the files among them, and the quoting rules of shells and Python.
// Pure.
import { toBytes } from "../../api/base64";
import { suffixOf } from "../model/suffixes";
import type { Scalar } from "../model/types";

/** Text, base64 of media, or (lists of) numbers. */
export type Content =
  | { kind: "text"; text: string }
  | { kind: "media"; mime: string; data: string }
  | { kind: "numbers"; numbers: unknown };

/** One value of an input. */
export interface Piece {
  input: string;
  modality: string;
  content: Content;
  /** The turn of a conversation that it belongs to. */
  turn?: { key: string; role: string } | undefined;
}

export type Params = Readonly<Record<string, Scalar>>;

/** How programs on the service's machine get in, as far as the one who looks may know. */
export interface Access {
  /** Where the service lives, if programs don't look there by themselves. */
  home: string | null;
  /** The file with its token; null: it has none, or who looks may not know. */
  tokenFile: string | null;
}

export interface Call {
  /** Origin of the service. */
  url: string;
  access: Access;
  deployment: string;
  task: string;
  /** In the order of the request. */
  pieces: readonly Piece[];
  /** The order between inputs counts: they are sent as `parts`. */
  ordered: boolean;
  params: Params;
  /** Parameters that only matter for a stream. */
  watching: Params;
  /** The task keeps states between requests of a session. */
  session: boolean;
  /** Modality of what it is for, where that is known. */
  makes: "text" | "image" | "audio" | null;
  /** OpenAI's route that it serves, and what `model` is there. */
  openai: { route: OpenAiRoute; model: string } | null;
  /** The parameter that says who speaks, and who does. */
  voice: { name: string; value: string } | null;
}

export type OpenAiRoute = "chat.completions" | "images.generations" | "images.edits" | "audio.speech";

/** A file that a call reads. */
export interface FileUsed {
  name: string;
  /** The encoding of `data`. */
  encoding: "base64" | "text";
  data: string;
}

export interface Snippet {
  text: string;
  /** For saving them beside it. */
  files: FileUsed[];
}

export interface Placed extends Piece {
  /** null: it stands in the call itself. */
  file: FileUsed | null;
}

const MOST_INLINE = 200;
/** Media are files; texts and numbers are where they are long. Two that are alike are one file. */
export function placed(call: Call): Placed[] {
  const used = new Map<string, FileUsed>();
  return call.pieces.map((piece) => {
    // Among `parts` a file of numbers could not be told from any other.
    const made = call.ordered && piece.content.kind === "numbers" ? null : fileOf(piece);
    if (!made) return { ...piece, file: null };
    const base = call.ordered || piece.turn ? piece.modality : piece.input;
    for (let count = 1; ; count += 1) {
      const name = `${count === 1 ? base : `${base}-${count}`}${made.suffix}`;
      const other = used.get(name);
      if (other && other.data !== made.data) continue;
      const file = other ?? { name, encoding: made.encoding, data: made.data };
      used.set(name, file);
      return { ...piece, file };
    }
  });
}

function fileOf({ content }: Piece): (Omit<FileUsed, "name"> & { suffix: string }) | null {
  switch (content.kind) {
    case "media":
      return { suffix: suffixOf(content.mime), encoding: "base64", data: content.data };
    case "text":
      return lengthOf(content.text) > MOST_INLINE ? { suffix: ".txt", encoding: "text", data: content.text } : null;
    case "numbers": {
      const data = JSON.stringify(content.numbers);
      return data.length > MOST_INLINE ? { suffix: ".json", encoding: "text", data } : null;
    }
  }
}

const lengthOf = (text: string) => new TextEncoder().encode(text).length;

export function filesOf(values: readonly Placed[]): FileUsed[] {
  return [...new Set(values.flatMap(({ file }) => (file ? [file] : [])))];
}

export function bytesOf(file: FileUsed): Uint8Array {
  return file.encoding === "base64" ? toBytes(file.data) : new TextEncoder().encode(file.data);
}

/** By their inputs, in the order in which these come first. */
export function byInput(values: readonly Placed[]): Map<string, Placed[]> {
  const found = new Map<string, Placed[]>();
  for (const value of values) found.set(value.input, [...(found.get(value.input) ?? []), value]);
  return found;
}

/** True if the call has a conversation. */
export function talks(values: readonly Piece[]): boolean {
  return values.some(({ turn }) => turn !== undefined);
}

/** The turns of a conversation. `text`: a turn's only text; `part`: one of its parts. */
export function turnsOf(
  values: readonly Placed[],
  text: (value: Placed) => unknown,
  part: (value: Placed) => unknown,
): { role: string; content: unknown }[] {
  const found = new Map<string, Placed[]>();
  for (const value of values)
    if (value.turn) found.set(value.turn.key, [...(found.get(value.turn.key) ?? []), value]);
  return [...found.values()].map((own) => ({
    role: own[0]?.turn?.role ?? "user",
    content: own.length === 1 && own[0]?.content.kind === "text" ? text(own[0]) : own.map(part),
  }));
}

/** Joins the texts, each on its line. */
export function textOf(values: readonly Placed[]): string {
  return values.map(({ content }) => (content.kind === "text" ? content.text : "")).join("\n");
}

// ── shells ──────────────────────────────────────────────────────────────────────────────────────

/** One word of a POSIX shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

// ── Python ──────────────────────────────────────────────────────────────────────────────────────

/** Source that stands in a value as it is. */
export class Source {
  constructor(readonly text: string) {}
}

const WIDTH = 88;

/** A value as source; what is too wide for a line is broken. `depth`: levels of four spaces that it stands at. */
export function python(value: unknown, depth = 0, before = 0): string {
  const flat = flatOf(value);
  if (depth * 4 + before + flat.length <= WIDTH || !isNested(value)) return flat;
  const inside = "    ".repeat(depth + 1);
  const outside = "    ".repeat(depth);
  if (Array.isArray(value))
    return `[\n${value.map((entry) => `${inside}${python(entry, depth + 1)},\n`).join("")}${outside}]`;
  const lines = Object.entries(value as object).map(([key, child]) => {
    const head = `${pythonText(key)}: `;
    return `${inside}${head}${python(child, depth + 1, head.length)},\n`;
  });
  return `{\n${lines.join("")}${outside}}`;
}

function isNested(value: unknown): boolean {
  if (value instanceof Source || typeof value !== "object" || value === null) return false;
  return !Array.isArray(value) || value.some((entry) => typeof entry === "object");
}

function flatOf(value: unknown): string {
  if (value instanceof Source) return value.text;
  if (Array.isArray(value)) return `[${value.map(flatOf).join(", ")}]`;
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null || value === undefined) return "None";
  if (typeof value !== "object") return typeof value === "string" ? pythonText(value) : String(value);
  const pairs = Object.entries(value).map(([key, child]) => `${pythonText(key)}: ${flatOf(child)}`);
  return `{${pairs.join(", ")}}`;
}

/** JSON's escapes are Python's too, but for surrogate pairs, which JSON.stringify leaves as they are. */
export function pythonText(text: string): string {
  return JSON.stringify(text);
}

const KEYWORDS = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally for from global " +
    "if import in is lambda nonlocal not or pass raise return try while with yield"
  ).split(" "),
);

/** `head(a=1, b=2)`, on several lines where one is too narrow. */
export function pythonCall(head: string, given: Readonly<Record<string, unknown>>, depth: number): string {
  const isName = (name: string) => /^[A-Za-z_]\w*$/.test(name) && !KEYWORDS.has(name);
  const named = Object.entries(given).filter(([name]) => isName(name));
  const others = Object.entries(given).filter(([name]) => !isName(name));
  const words: [string, unknown][] = named.map(([name, value]) => [`${name}=`, value]);
  if (others.length > 0) words.push(["**", Object.fromEntries(others)]);
  const flat = `${head}(${words.map(([name, value]) => name + flatOf(value)).join(", ")})`;
  if (depth * 4 + flat.length <= WIDTH) return flat;
  const inside = "    ".repeat(depth + 1);
  const lines = words.map(([name, value]) => `${inside}${name}${python(value, depth + 1, name.length + 1)},\n`);
  return `${head}(\n${lines.join("")}${"    ".repeat(depth)})`;
}

const PATHS = "from pathlib import Path";

/** The import that lines with paths need. */
export function pathsIn(lines: readonly string[]): string[] {
  return lines.some((line) => line.includes("Path(")) ? [PATHS] : [];
}

/** The line that reads the token into `token`, and the imports that it needs. */
export function tokenLine({ tokenFile }: Access): { imports: string[]; line: string } {
  if (tokenFile === null) return { imports: ["import os"], line: `token = os.environ["WALKGRAPH_TOKEN"]` };
  const read = `Path(${pythonText(tokenFile)}).read_text().strip()`;
  return {
    imports: ["import os", PATHS],
    line: `token = os.environ.get("WALKGRAPH_TOKEN") or ${read}`,
  };
}

/** Imports of the standard library, sorted as Ruff does; then the others, apart. */
export function imports(standard: readonly string[], others: readonly string[]): string[] {
  const plain = (line: string) => Number(line.startsWith("from "));
  const sorted = [...new Set(standard)].sort((a, b) => plain(a) - plain(b) || a.localeCompare(b));
  return [...sorted, ...(sorted.length > 0 ? [""] : []), ...others, ""];
}
