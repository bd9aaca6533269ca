// JSON that somebody typed or pasted: the graph in it, or what is wrong and on which line. Pure.
import { parse, type Sources } from "../document/json";
import type { GraphDocument } from "../document/types";
import { strings } from "../strings";

export type Pasted =
  { ok: true; graph: GraphDocument; sources: Sources } | { ok: false; line: number | null; message: string };

export function readPasted(text: string): Pasted {
  if (!text.trim()) return { ok: false, line: 1, message: strings.versions.thereIsNothingHerePaste };
  let read: ReturnType<typeof parse>;
  try {
    read = parse(text);
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    const position = /\s*(?:at )?position (\d+)/i.exec(said);
    const line = position ? lineAt(text, Number(position[1])) : null;
    return { ok: false, line, message: said.replace(/\s*(?:\(?at )?position \d+\)?.*/is, "") };
  }
  const { value, sources } = read;
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return { ok: false, line: 1, message: strings.versions.aGraphIsOneJson };
  const wrong = Object.entries(CONTAINERS).find(
    ([key, kind]) => key in value && !fits(Reflect.get(value, key), kind),
  );
  if (wrong) {
    const [key, kind] = wrong;
    const line = lineAt(text, Math.max(0, text.indexOf(JSON.stringify(key))));
    return {
      ok: false,
      line,
      message: strings.versions.must(key, kind === "list" ? strings.versions.aList : strings.versions.anObject),
    };
  }
  return { ok: true, graph: value as GraphDocument, sources };
}

/** The parts that must have this form for the editor; the check judges the rest. */
const CONTAINERS: Record<string, "object" | "list"> = {
  weights: "object",
  states: "object",
  nodes: "object",
  walks: "object",
  tasks: "object",
  layout: "object",
  streams: "list",
};

function fits(value: unknown, kind: "object" | "list"): boolean {
  return kind === "list"
    ? Array.isArray(value)
    : typeof value === "object" && value !== null && !Array.isArray(value);
}

function lineAt(text: string, position: number): number {
  return text.slice(0, position).split("\n").length;
}
