// The default of a task's input, as one line that is typed. Pure.
import type { TaskInput } from "../../document/types";

type Default = TaskInput["default"];

/** A text as it is, but for its line ends; anything else as JSON. */
export function writtenDefault(value: Default): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value.replace(/\\/g, "\\\\").replace(/\n/g, "\\n") : JSON.stringify(value);
}

/** undefined: there is none. Numbers may stand without brackets and commas; what is none stays a text, which the check names. */
export function readDefault(text: string, modality: string): Default {
  if (text === "") return undefined;
  if (modality === "text") return text.replace(/\\([\\n])/g, (_, letter: string) => (letter === "n" ? "\n" : "\\"));
  if (text === "true" || text === "false") return text === "true";
  const numbers = text
    .replace(/^\s*\[|\]\s*$/g, " ")
    .trim()
    .split(/[\s,]+/)
    .map(Number);
  if (!numbers.every(Number.isFinite)) return text;
  return numbers.length === 1 && !text.includes("[") ? numbers[0] : numbers;
}
