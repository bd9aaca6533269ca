// A conversation in a form: its turns, each a role and parts; and what stands in a request for it. Pure.
import type { Given, Media, Part, Role, TaskShown } from "./types";

export const MESSAGES = "messages";
export const ROLES: readonly Role[] = ["system", "user", "assistant", "tool"];
const KINDS = ["text", "image", "audio", "video"];

/** The inputs that a task takes in a conversation, as its schema says. */
export interface Taken {
  roles: readonly Role[];
  /** Modalities of parts, in turns of any role. */
  kinds: readonly string[];
  /** Those of roles whose turns take fewer. */
  fewer: Readonly<Partial<Record<Role, readonly string[]>>>;
}

/** A turn as the form shows it. */
export interface TurnShown {
  key: string;
  role: Role;
  parts: Part[];
}

let keys = 0;

export function newKey(): string {
  keys += 1;
  return `t${keys}`;
}

/** The input that takes a conversation; null: none does. */
export function conversationOf(task: TaskShown): string | null {
  return Object.entries(task.inputs).find(([, declared]) => declared.modality === MESSAGES)?.[0] ?? null;
}

export function takenBy(task: TaskShown, input: string): Taken {
  const items = inside(schemaOf(task, input), "items");
  const roles = inside(items, "properties", "role")?.["enum"];
  const forms = inside(inside(items, "properties", "content")?.["anyOf"], "1", "items")?.["oneOf"];
  const found = (Array.isArray(forms) ? forms : []).map((form) => inside(form, "properties", "type")?.["const"]);
  const kinds = [...new Set(found.filter((kind): kind is string => typeof kind === "string"))];
  return {
    roles: ROLES.filter((role) => !Array.isArray(roles) || roles.includes(role)),
    // Texts first, as they are what is written most.
    kinds: [...KINDS.filter((kind) => kinds.includes(kind)), ...kinds.filter((kind) => !KINDS.includes(kind))],
    fewer: fewerIn(items?.["allOf"]),
  };
}

/** The kinds of parts that a turn of this role can have. */
export function kindsOf({ kinds, fewer }: Taken, role: Role): readonly string[] {
  const own = fewer[role];
  return own ? kinds.filter((kind) => own.includes(kind)) : kinds;
}

function fewerIn(rules: unknown): Partial<Record<Role, readonly string[]>> {
  const found: Partial<Record<Role, readonly string[]>> = {};
  for (const rule of Array.isArray(rules) ? rules : []) {
    const name = inside(rule, "if", "properties", "role")?.["const"];
    const kinds = inside(rule, "then", "properties", "content", "items", "properties", "type")?.["enum"];
    const role = ROLES.find((known) => known === name);
    if (role && Array.isArray(kinds)) found[role] = kinds;
  }
  return found;
}

function schemaOf(task: TaskShown, input: string): unknown {
  const inputs = inside(task.schema, "properties", "inputs");
  const named = Array.isArray(inputs?.["anyOf"]) ? inputs["anyOf"][0] : inputs;
  return inside(named, "properties", input);
}

function inside(value: unknown, ...path: string[]): Record<string, unknown> | undefined {
  let found = value;
  for (const name of path) found = (found as Record<string, unknown> | undefined)?.[name];
  return typeof found === "object" && found !== null ? (found as Record<string, unknown>) : undefined;
}

// ── the form ────────────────────────────────────────────────────────────────────────────────────

export function turnsOf(given: Given, input: string): TurnShown[] {
  return turnsIn(given.parts.filter((part) => part.input === input));
}

export function turnsIn(parts: readonly Part[]): TurnShown[] {
  const found: TurnShown[] = [];
  for (const part of parts) {
    if (!part.turn) continue;
    const last = found.at(-1);
    if (last?.key === part.turn.key) last.parts.push(part);
    else found.push({ ...part.turn, parts: [part] });
  }
  return found;
}

export function partOfTurn(
  input: string,
  turn: { key: string; role: Role },
  modality = "text",
  text = "",
  media: Media | null = null,
): Part {
  return { key: newKey(), input, modality, text, media, turn: { key: turn.key, role: turn.role } };
}

/** One more turn at the end. */
export function withTurn(given: Given, input: string, role: Role, text = "", modality = "text"): Given {
  const part = partOfTurn(input, { key: newKey(), role }, modality, text);
  return { ...given, parts: [...given.parts, part] };
}

/** One more part at the end of a turn. */
export function withPart(given: Given, turn: TurnShown, modality: string, media: Media | null = null): Given {
  const last = turn.parts.at(-1);
  if (!last) return given;
  const at = given.parts.findIndex((part) => part.key === last.key) + 1;
  const made = partOfTurn(last.input, turn, modality, "", media);
  return { ...given, parts: [...given.parts.slice(0, at), made, ...given.parts.slice(at)] };
}

export function withRole(given: Given, turn: TurnShown, role: Role): Given {
  const change = (part: Part): Part =>
    part.turn?.key === turn.key ? { ...part, turn: { key: turn.key, role } } : part;
  return { ...given, parts: given.parts.map(change) };
}

export function withoutTurn(given: Given, turn: TurnShown): Given {
  return { ...given, parts: given.parts.filter((part) => part.turn?.key !== turn.key) };
}

/** The answer as the assistant's turn, and a place for the next question. */
export function answered(given: Given, input: string, taken: Taken, text: string): Given {
  if (!taken.roles.includes("assistant")) return given;
  const kept = { ...given, parts: given.parts.filter((part) => part.input !== input || !isBlank(part)) };
  const next = withTurn(kept, input, "assistant", text);
  return taken.roles.includes("user") ? withTurn(next, input, "user") : next;
}

/** A picture or sound that comes from elsewhere goes into the last turn of the user, which may be a new one. */
export function withMedia(given: Given, input: string, modality: string, media: Media): Given {
  const last = turnsOf(given, input).at(-1);
  if (last?.role !== "user") {
    const key = newKey();
    return { ...given, parts: [...given.parts, partOfTurn(input, { key, role: "user" }, modality, "", media)] };
  }
  const free = last.parts.find((part) => part.modality === modality && part.media === null);
  if (!free) return withPart(given, last, modality, media);
  return { ...given, parts: given.parts.map((part) => (part.key === free.key ? { ...part, media } : part)) };
}

function isBlank(part: Part): boolean {
  return part.media === null && part.text.trim() === "";
}

// ── the request ─────────────────────────────────────────────────────────────────────────────────

/** The turns with their parts written; a turn of one text has it as its content. */
export function written(parts: readonly Part[], write: (part: Part) => unknown): unknown[] {
  return turnsIn(parts.filter((part) => !isBlank(part))).map(({ role, parts: own }) => ({
    role,
    content: own.length === 1 && own[0]?.modality === "text" ? own[0].text : own.map(write),
  }));
}

/** The parts of a request's turns, each with its turn. `read`: one part of a modality. */
export function readTurns(value: unknown, read: (modality: string, part: unknown) => Part): Part[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((turn: { role?: unknown; content?: unknown } | null) => {
    const role = ROLES.find((known) => known === turn?.role);
    if (!turn || !role) return [];
    const key = newKey();
    const parts = typeof turn.content === "string" ? [turn.content] : Array.isArray(turn.content) ? turn.content : [];
    return parts
      .filter((part) => part !== null)
      .map((part: unknown) => {
        const kind = typeof part === "string" ? "text" : String((part as { type?: unknown }).type ?? "text");
        return { ...read(kind, part), turn: { key, role } };
      });
  });
}
