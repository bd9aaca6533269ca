// The call that does the same as the form, to be copied: curl, Python, the command line. Pure. Values over 200 bytes
// are files.
import type { Body } from "./types";

export type Language = "curl" | "python" | "cli";

export interface Snippet {
  text: string;
  /** Files that it reads: name -> base64 or text, for saving them beside it. */
  files: FileUsed[];
}

export interface FileUsed {
  name: string;
  /** Of `data`. */
  encoding: "base64" | "text";
  data: string;
}

export interface Call {
  url: string;
  deployment: string;
  task: string;
  body: Body;
  /** Input -> its modality. */
  modalities: Record<string, string>;
}

const MOST_BYTES = 200;
const SUFFIXES: Record<string, string> = {
  "image/png": ".png",
  "image/jpeg": ".jpg",
  "image/webp": ".webp",
  "audio/wav": ".wav",
  "audio/flac": ".flac",
  "audio/ogg": ".ogg",
  "video/mp4": ".mp4",
};
const MAGIC: readonly [string, string][] = [
  ["iVBOR", ".png"],
  ["/9j/", ".jpg"],
  ["UklGR", ".wav"],
  ["ZkxhQw", ".flac"],
  ["T2dnUw", ".ogg"],
];

export function suffixOf(mime: string): string {
  return SUFFIXES[mime] ?? ".bin";
}

export function snippet(language: Language, call: Call): Snippet {
  if (language === "cli") return cli(call);
  const files: FileUsed[] = [];
  const body = outlined(call, files, language === "curl");
  return { text: language === "curl" ? curl(call, body, files) : python(call, body), files };
}

// ── large values out of the body ────────────────────────────────────────────────────────────────

class File {
  constructor(readonly file: FileUsed) {}
}

/** The body with a `File` in the place of each large value; `asJson`: texts are kept as JSON, quotes and all. */
function outlined(call: Call, files: FileUsed[], asJson: boolean): Record<string, unknown> {
  const used = new Map<string, number>();
  const named = (base: string, suffix: string): string => {
    const count = (used.get(base + suffix) ?? 0) + 1;
    used.set(base + suffix, count);
    return count === 1 ? base + suffix : `${base}-${count}${suffix}`;
  };
  const visit = (value: unknown, base: string, modality: string, mime: string): unknown => {
    if (typeof value === "string") {
      if (new TextEncoder().encode(value).length <= MOST_BYTES) return value;
      const isText = modality === "text";
      const suffix = isText ? (asJson ? ".json" : ".txt") : (SUFFIXES[mime] ?? magic(value));
      const data = isText && asJson ? JSON.stringify(value) : value;
      const file: FileUsed = { name: named(base, suffix), encoding: isText ? "text" : "base64", data };
      files.push(file);
      return new File(file);
    }
    if (Array.isArray(value)) {
      const numbers = value.length > 0 && (typeof value[0] === "number" || Array.isArray(value[0]));
      if (!numbers) return value.map((entry) => visit(entry, base, modality, mime));
      const text = JSON.stringify(value);
      if (text.length <= MOST_BYTES) return value;
      const file: FileUsed = { name: named(base, ".json"), encoding: "text", data: text };
      files.push(file);
      return new File(file);
    }
    if (typeof value === "object" && value !== null) {
      const fields = value as Record<string, unknown>;
      const kind = typeof fields["type"] === "string" ? fields["type"] : modality;
      const as = typeof fields["mime"] === "string" ? fields["mime"] : mime;
      const entries = Object.entries(fields).map(([key, child]) => [
        key,
        key === "type" || key === "mime" ? child : visit(child, base === "parts" ? kind : base, kind, as),
      ]);
      return Object.fromEntries(entries.filter(([, child]) => child !== undefined));
    }
    return value;
  };
  const inputs = Object.fromEntries(
    Object.entries(call.body.inputs).map(([name, value]) => [
      name,
      visit(value, name, call.modalities[name] ?? "", ""),
    ]),
  );
  const params = call.body.params;
  return Object.keys(params).length > 0 ? { inputs, params } : { inputs };
}

function magic(data: string): string {
  return MAGIC.find(([head]) => data.startsWith(head))?.[1] ?? ".bin";
}

// ── curl ────────────────────────────────────────────────────────────────────────────────────────

function curl(call: Call, body: Record<string, unknown>, files: FileUsed[]): string {
  const address = `${call.url}/v1/tasks/${call.deployment}/${call.task}`;
  const head = [`-H "Authorization: Bearer $WALKGRAPH_TOKEN"`, `-H "Content-Type: application/json"`];
  if (files.length === 0) {
    const inline = JSON.stringify(body);
    const data = inline.length > 60 ? JSON.stringify(body, null, 2) : inline;
    return [`curl ${quoted(address)}`, ...head, `-d ${quoted(data)}`].join(" \\\n  ");
  }
  // printf is the shell's own, so that a large file is no argument of a program.
  const reads: string[] = [];
  const format = template(body, (file) => {
    const encoded = file.encoding === "base64";
    reads.push(encoded ? `"$(base64 < ${quoted(file.name)} | tr -d '\\n')"` : `"$(cat ${quoted(file.name)})"`);
    return encoded ? '"%s"' : "%s";
  });
  return [
    `printf ${quoted(format)} \\`,
    ...reads.map((read) => `  ${read} \\`),
    `  | curl ${quoted(address)} \\`,
    ...head.map((line) => `      ${line} \\`),
    "      -d @-",
  ].join("\n");
}

/** A body as JSON and a format of printf, each file by what `name` makes of it. */
function template(value: unknown, name: (file: FileUsed) => string): string {
  if (value instanceof File) return name(value.file);
  if (Array.isArray(value)) return `[${value.map((entry) => template(entry, name)).join(", ")}]`;
  if (typeof value === "object" && value !== null)
    return `{${Object.entries(value)
      .map(([key, child]) => `${template(key, name)}: ${template(child, name)}`)
      .join(", ")}}`;
  return JSON.stringify(value).replace(/\\/g, "\\\\").replace(/%/g, "%%");
}

function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

// ── Python ──────────────────────────────────────────────────────────────────────────────────────

function python(call: Call, body: Record<string, unknown>): string {
  const written = pythonValue(body, 0);
  const encodes = written.includes("encoded(");
  const paths = encodes || written.includes("Path(");
  const imports = [
    ...(encodes ? ["import base64"] : []),
    ...(written.includes("json.loads(") ? ["import json"] : []),
    ...(paths ? ["from pathlib import Path"] : []),
  ];
  return [
    ...imports,
    ...(imports.length > 0 ? [""] : []),
    "from walkgraph.client import Client",
    "from walkgraph.settings import Settings",
    "",
    ...(encodes
      ? [
          "",
          "def encoded(path: str) -> str:",
          "    return base64.b64encode(Path(path).read_bytes()).decode()",
          "",
          "",
        ]
      : []),
    `request = ${written}`,
    "with Client.local(Settings()) as client:",
    `    for event in client.stream(${pythonText(call.deployment)}, ${pythonText(call.task)}, request):`,
    "        print(event.name, event.data)",
  ].join("\n");
}

function pythonValue(value: unknown, depth: number): string {
  const inside = "    ".repeat(depth + 1);
  const outside = "    ".repeat(depth);
  if (value instanceof File) {
    const { name, encoding } = value.file;
    if (encoding === "base64") return `encoded(${pythonText(name)})`;
    const read = `Path(${pythonText(name)}).read_text("utf-8")`;
    return name.endsWith(".json") ? `json.loads(${read})` : read;
  }
  if (Array.isArray(value)) {
    if (value.every((entry) => typeof entry === "number"))
      return `[${value.map((entry) => pythonValue(entry, 0)).join(", ")}]`;
    return `[\n${value.map((entry) => `${inside}${pythonValue(entry, depth + 1)},\n`).join("")}${outside}]`;
  }
  if (typeof value === "object" && value !== null) {
    const lines = Object.entries(value).map(
      ([key, child]) => `${inside}${pythonText(key)}: ${pythonValue(child, depth + 1)},\n`,
    );
    return lines.length > 0 ? `{\n${lines.join("")}${outside}}` : "{}";
  }
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null || value === undefined) return "None";
  return typeof value === "string" ? pythonText(value) : String(value);
}

/** JSON's escapes are Python's too, but for surrogate pairs, which JSON.stringify leaves as they are. */
function pythonText(text: string): string {
  return JSON.stringify(text);
}

// ── the command line ────────────────────────────────────────────────────────────────────────────

function cli(call: Call): Snippet {
  const files: FileUsed[] = [];
  const { parts, ...named } = call.body.inputs;
  const used = new Map<string, number>();
  const options: string[] = [];
  const add = (name: string, modality: string, value: unknown): void => {
    const fields =
      typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
    const content = fields["text"] ?? fields["data"] ?? value;
    if (modality === "text") {
      // The command line takes texts as they are; a long one is read by the shell.
      const text = String(content);
      const long = new TextEncoder().encode(text).length > MOST_BYTES;
      options.push(`--${name} ${long ? `"$(cat ${quoted(file(name, ".txt", "text", text))})"` : quoted(text)}`);
      return;
    }
    const media = typeof content === "string";
    const mime = typeof fields["mime"] === "string" ? fields["mime"] : "";
    const made = media
      ? file(name, SUFFIXES[mime] ?? magic(content), "base64", content)
      : file(name, ".json", "text", JSON.stringify(content));
    options.push(`--${name} ${quoted(made)}`);
  };
  const file = (base: string, suffix: string, encoding: FileUsed["encoding"], data: string): string => {
    const count = (used.get(base + suffix) ?? 0) + 1;
    used.set(base + suffix, count);
    const name = count === 1 ? base + suffix : `${base}-${count}${suffix}`;
    files.push({ name, encoding, data });
    return name;
  };
  const tensor = (value: unknown) =>
    Array.isArray(value) && (typeof value[0] === "number" || Array.isArray(value[0]));
  for (const [name, value] of Object.entries(named)) {
    const values = Array.isArray(value) && !tensor(value) ? (value as unknown[]) : [value];
    for (const one of values) add(name, call.modalities[name] ?? "text", one);
  }
  for (const [name, value] of Object.entries(call.body.params)) options.push(`--${name} ${quoted(String(value))}`);
  const lines = [`walkgraph run ${quoted(call.deployment)} ${quoted(call.task)}`, ...options].join(" \\\n  ");
  if (parts === undefined) return { text: lines, files };
  const note =
    "# The command line sends values in the order of the task's inputs; for an order of your own use curl or Python.";
  return { text: note, files: [] };
}
