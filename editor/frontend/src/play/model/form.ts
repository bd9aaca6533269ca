// The form of a task: its defaults, what is wrong with what was given, and the request that it makes. Pure.
import { MESSAGES, newKey, partOfTurn, readTurns, written } from "./conversation";
import { parseNumbers } from "./numbers";
import { PREVIEW } from "./results";
import type { Body, Given, InputShown, Media, ParamShown, Part, Scalar, TaskShown } from "./types";
import { strings } from "../../strings";

const MEDIA = ["image", "audio", "video", "bytes"] as const;
export const MAX_SEED = Number.MAX_SAFE_INTEGER;
const MOST_SLIDER_STEPS = 1000;
const MOST_PARTS = 256;
const MOST_MEDIA = 16;
/** Limit of a request; base64 takes a third more than the bytes. */
const MOST_BODY_BYTES = 32 * 1024 * 1024;
/** The parameter that says how many steps lie between two previews, and what it is where a person watches. */
const EVERY = "preview_every";
const WATCHED = 2;

export type Widget = "text" | "media" | "numbers";

export function widgetOf(modality: string): Widget {
  if (modality === "text") return "text";
  return (MEDIA as readonly string[]).includes(modality) ? "media" : "numbers";
}

/** `max_tokens` -> `Max tokens`. */
export function labelOf(name: string): string {
  const words = name.replace(/_/g, " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** The example that a description gives in backticks, where it says nothing more than an example. */
export function exampleOf(description: string): string {
  return /: `([^`]+)`/.exec(description)?.[1] ?? "";
}

let keys = 0;

export function newPart(input: string, declared: InputShown, text = "", media: Media | null = null): Part {
  keys += 1;
  return { key: `p${keys}`, input, modality: declared.modality, text, media };
}

/** One of an earlier page: its rows are told from those of this one. */
export function renewed(given: Given): Given {
  const turns = new Map<string, string>();
  const parts = given.parts.map((part) => {
    keys += 1;
    const made = { ...part, key: `p${keys}` };
    if (!part.turn) return made;
    const key = turns.get(part.turn.key) ?? newKey();
    turns.set(part.turn.key, key);
    return { ...made, turn: { ...part.turn, key } };
  });
  return { ...given, parts };
}

/** A value for each input that is needed, texts and numbers with their example; previews, where the task has any, are watched. */
export function fresh(task: TaskShown): Given {
  const parts = Object.entries(task.inputs)
    .filter(([, declared]) => !declared.optional)
    .map(([name, declared]) =>
      declared.modality === MESSAGES
        ? partOfTurn(name, { key: newKey(), role: "user" }, "text", exampleOf(declared.description))
        : newPart(name, declared, startOf(declared)),
    );
  return { parts, ordered: false, params: watching(task), seed: { text: "", locked: false } };
}

/** The default, as it is typed; without one the example. */
function startOf(declared: InputShown): string {
  if (widgetOf(declared.modality) === "media") return "";
  return hasDefault(declared) ? defaultText(declared) : exampleOf(declared.description);
}

export function hasDefault(declared: InputShown): boolean {
  return declared.default !== undefined && declared.default !== null;
}

/** A text as it is, numbers with spaces between. */
export function defaultText({ default: value }: InputShown): string {
  return Array.isArray(value) ? value.join(" ") : String(value ?? "");
}

/** A client that asks for nothing gets no previews (the default is 0); whoever sits before the form sees them. */
function watching({ outputs, params }: TaskShown): Given["params"] {
  const every = params[EVERY];
  const silent = outputs.includes(PREVIEW) && every?.default === 0;
  return silent && paramFault(every, WATCHED) === null ? { [EVERY]: WATCHED } : {};
}

/** As the form lists them: what is watched first. The seed has a field of its own. */
export function listedParams({ outputs, params }: TaskShown): [name: string, param: ParamShown][] {
  const first = (name: string) => Number(name === EVERY && outputs.includes(PREVIEW));
  return Object.entries(params)
    .filter(([name]) => name !== "seed")
    .sort(([a], [b]) => first(b) - first(a));
}

/** The values of a form that remain valid after the task's declaration or the deployment has changed. */
export function fitted(task: TaskShown, given: Given, examples = true): Given {
  const parts = given.parts.filter(
    (part) => task.inputs[part.input]?.modality === (part.turn ? MESSAGES : part.modality),
  );
  const missing = fresh(task)
    .parts.filter((part) => !parts.some((found) => found.input === part.input))
    .map((part) => (examples ? part : { ...part, text: "" }));
  const params = Object.fromEntries(Object.entries(given.params).filter(([name]) => name in task.params));
  return { ...given, parts: [...parts, ...missing], ordered: given.ordered && canOrder(task), params };
}

/** True if the order between inputs can matter: there are several, and at least one takes several values. */
export function canOrder(task: TaskShown): boolean {
  const inputs = Object.values(task.inputs);
  return inputs.length > 1 && inputs.some((declared) => declared.many) && !("parts" in task.inputs);
}

export function isEmpty(part: Part): boolean {
  return widgetOf(part.modality) === "media" ? part.media === null : part.text.trim() === "";
}

/** Steps of a number's slider; null: too wide or without bounds, a box alone. */
export function sliderOf(param: ParamShown): { min: number; max: number; step: number } | null {
  if (param.min === null || param.max === null || param.max <= param.min) return null;
  const span = param.max - param.min;
  if (param.type === "integer")
    return span <= MOST_SLIDER_STEPS * 10 ? { min: param.min, max: param.max, step: 1 } : null;
  const step = [0.01, 0.05, 0.1, 0.5, 1].find((width) => span / width <= MOST_SLIDER_STEPS);
  return step === undefined ? null : { min: param.min, max: param.max, step };
}

/** The input that takes a picture; null: none does. */
export function pictureInput(task: TaskShown): string | null {
  return Object.entries(task.inputs).find(([, declared]) => declared.modality === "image")?.[0] ?? null;
}

/** With this picture in place of all that were given for that input. */
export function withPicture(task: TaskShown, given: Given, picture: Media): Given {
  const name = pictureInput(task);
  const declared = name === null ? undefined : task.inputs[name];
  if (name === null || !declared) return given;
  const at = Math.max(
    0,
    given.parts.findIndex((part) => part.input === name),
  );
  const others = (parts: Part[]) => parts.filter((part) => part.input !== name);
  const parts = [
    ...others(given.parts.slice(0, at)),
    newPart(name, declared, "", picture),
    ...others(given.parts.slice(at)),
  ];
  return { ...given, parts };
}

// ── what is wrong ───────────────────────────────────────────────────────────────────────────────

/** `part:KEY`, `input:NAME`, `param:NAME`, `seed` or `all` -> what to do. Empty: it can be run. */
export type Faults = Readonly<Record<string, string>>;

export function judge(task: TaskShown, given: Given): Faults {
  const faults: Record<string, string> = {};
  for (const [name, declared] of Object.entries(task.inputs)) {
    const count = given.parts.filter((part) => part.input === name && !isEmpty(part)).length;
    if (count === 0 && !declared.optional && !hasDefault(declared))
      faults[`input:${name}`] = strings.play.isNeeded(wanted(declared));
    if (count > 1 && !declared.many && declared.modality !== MESSAGES)
      faults[`input:${name}`] = strings.play.onlyOneCanBeGiven;
  }
  for (const part of given.parts) {
    if (widgetOf(part.modality) !== "numbers" || isEmpty(part)) continue;
    const found = parseNumbers(part.text);
    if (!found.ok) faults[`part:${part.key}`] = found.message;
  }
  for (const [name, param] of Object.entries(task.params)) {
    const fault = paramFault(param, name in given.params ? given.params[name] : param.default);
    if (fault) faults[`param:${name}`] = fault;
  }
  if (given.seed.locked) {
    const fault = seedFault(given.seed.text);
    if (fault) faults["seed"] = fault;
  }
  const all = wholeFault(given);
  if (all) faults["all"] = all;
  return faults;
}

function wanted(declared: InputShown): string {
  const words: Record<string, string> = {
    text: strings.play.aText,
    image: strings.play.aPicture,
    audio: strings.play.aSound,
    video: strings.play.aVideo,
    messages: strings.play.aConversation,
  };
  return (
    words[declared.modality] ?? (declared.modality === "bytes" ? strings.play.aFile : strings.play.aListOfNumbers)
  );
}

export function paramFault(param: ParamShown, value: Scalar | null | undefined): string | null {
  if (value === null || value === undefined)
    return param.type === "string" ? strings.play.typeAText : strings.play.typeANumber;
  if (param.choices.length > 0) return param.choices.includes(value) ? null : strings.play.chooseOneOfTheList;
  if (param.type === "boolean") return typeof value === "boolean" ? null : strings.play.chooseYesOrNo;
  if (param.type === "string") return typeof value === "string" ? null : strings.play.typeAText;
  if (typeof value !== "number" || !Number.isFinite(value)) return strings.play.typeANumber;
  if (param.type === "integer" && !Number.isInteger(value)) return strings.play.typeAWholeNumber;
  if (param.min !== null && value < param.min) return strings.play.atLeast(param.min);
  if (param.max !== null && value > param.max) return strings.play.atMost(param.max);
  return null;
}

function seedFault(text: string): string | null {
  if (!/^\d+$/.test(text.trim())) return strings.play.typeAWholeNumber0;
  return Number(text) > MAX_SEED ? strings.play.atMost(MAX_SEED) : null;
}

function wholeFault(given: Given): string | null {
  const sent = given.parts.filter((part) => !isEmpty(part));
  if (sent.length > MOST_PARTS) return strings.play.atMostValuesCan(MOST_PARTS);
  const media = sent.filter((part) => part.media !== null);
  if (media.length > MOST_MEDIA) return strings.play.atMostPicturesAndSounds(MOST_MEDIA);
  const bytes = media.reduce((sum, part) => sum + (part.media?.data.length ?? 0), 0);
  return bytes > MOST_BODY_BYTES - 100_000 ? strings.play.theFilesAreTooLarge : null;
}

// ── the request ─────────────────────────────────────────────────────────────────────────────────

/** The body for the service; of a form without faults. Parameters at their default are left out. */
export function request(task: TaskShown, given: Given): Body {
  const parts = given.parts.filter((part) => !isEmpty(part) && part.input in task.inputs);
  const params: Record<string, Scalar> = {};
  for (const [name, value] of Object.entries(given.params)) {
    if (name in task.params && value !== task.params[name]?.default) params[name] = value;
  }
  if (given.seed.locked && seedFault(given.seed.text) === null) params["seed"] = Number(given.seed.text);
  if (given.ordered && canOrder(task)) return { inputs: { parts: parts.map(wrapped) }, params };
  const inputs: Record<string, unknown> = {};
  for (const [name, declared] of Object.entries(task.inputs)) {
    const own = parts.filter((part) => part.input === name);
    const values = declared.modality === MESSAGES ? written(own, wrapped) : own.map(bare);
    if (values.length > 0 && declared.modality === MESSAGES) inputs[name] = values;
    else if (values.length > 0) inputs[name] = declared.many && values.length > 1 ? values : values[0];
  }
  return { inputs, params };
}

function bare(part: Part): unknown {
  const widget = widgetOf(part.modality);
  if (widget === "text") return part.text;
  if (widget === "media") return part.media?.data ?? "";
  return wrapped(part);
}

function wrapped(part: Part): unknown {
  const widget = widgetOf(part.modality);
  if (widget === "text") return { type: part.modality, text: part.text };
  if (widget === "media") return { type: part.modality, mime: part.media?.mime, data: part.media?.data };
  const found = parseNumbers(part.text);
  return { type: part.modality, data: found.ok ? found.value : [] };
}

/** The form that makes such a request: of a run that another client sent. */
export function givenOf(task: TaskShown, body: { inputs?: unknown; params?: unknown }): Given {
  const inputs = (body.inputs ?? {}) as Record<string, unknown>;
  const listed = Array.isArray(inputs["parts"]) && !("parts" in task.inputs) ? (inputs["parts"] as unknown[]) : [];
  const named = Object.entries(task.inputs).flatMap(([name, declared]) =>
    declared.modality === MESSAGES
      ? readTurns(inputs[name], (modality, value) => partOf(name, { ...declared, modality }, value))
      : valuesOf(declared, inputs[name]).map((value) => partOf(name, declared, value)),
  );
  const ordered = listed.flatMap((value) => {
    const kind = (value as { type?: string }).type;
    const found = Object.entries(task.inputs).find(([, declared]) => declared.modality === kind);
    return found ? [partOf(found[0], found[1], value)] : [];
  });
  const { seed, ...params } = (body.params ?? {}) as Record<string, Scalar>;
  const text = seed === undefined ? "" : String(seed);
  const seeded = { text, locked: seed !== undefined };
  const given = { parts: [...named, ...ordered], ordered: ordered.length > 0, params, seed: seeded };
  return fitted(task, given, false);
}

function valuesOf(declared: InputShown, value: unknown): unknown[] {
  if (value === undefined || value === null) return [];
  const several = declared.many && Array.isArray(value);
  const bareTensor = widgetOf(declared.modality) === "numbers" && several && typeof value[0] !== "object";
  // Values that were too large to be stored are null.
  return several && !bareTensor ? value.filter((entry) => entry !== null) : [value];
}

function partOf(name: string, declared: InputShown, value: unknown): Part {
  const fields =
    typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
  const widget = widgetOf(declared.modality);
  if (widget === "text") return newPart(name, declared, String((fields ? fields["text"] : value) ?? ""));
  const data = fields ? fields["data"] : value;
  if (data === null || data === undefined) return newPart(name, declared);
  if (widget === "numbers") return newPart(name, declared, JSON.stringify(data));
  const [, head, rest] = /^data:([^;,]*)[^,]*,(.*)$/s.exec(String(data)) ?? [];
  const encoded = rest ?? String(data);
  const mime = head || String(fields?.["mime"] ?? mimeOf(encoded));
  return newPart(name, declared, "", { mime, data: encoded, name: "picture" });
}

/** By the first letters of the base64. */
export function mimeOf(data: string): string {
  if (data.startsWith("iVBOR")) return "image/png";
  if (data.startsWith("/9j/")) return "image/jpeg";
  if (data.startsWith("T2dnUw")) return "audio/ogg";
  if (data.startsWith("ZkxhQw")) return "audio/flac";
  if (data.startsWith("UklGR")) return atob(data.slice(0, 16)).endsWith("WAVE") ? "audio/wav" : "image/webp";
  if (data.startsWith("GkXfo")) return "video/webm";
  if (data.startsWith("UEsDB") || data.startsWith("UEsFB")) return "application/zip";
  if (/^[A-Za-z0-9+/]{12}/.test(data) && atob(data.slice(0, 12)).endsWith("ftyp", 8)) return "video/mp4";
  return "application/octet-stream";
}
