// Values of parameters as typed. Pure.
import type { Literal, TaskParam } from "../../document/types";

/** `a, b` -> its choices, each once; undefined for none. Numbers that don't read as such stay text, for the check. */
export function readChoices(text: string, type: TaskParam["type"]): Literal[] | undefined {
  const pieces = text.split(",").map((piece) => piece.trim());
  const found = pieces.filter((piece) => piece !== "").map((piece) => readScalar(piece, type));
  return found.length > 0 ? [...new Set(found)] : undefined;
}

function readScalar(text: string, type: TaskParam["type"]): Literal {
  if (type === "string" || type === "boolean") return text;
  const number = Number(text);
  return Number.isFinite(number) ? number : text;
}
