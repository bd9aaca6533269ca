// Expressions as text: what they name, and the same text with a loop under another name. The grammar is the service's.

const PART =
  /'[^'\n]*'|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|@loop\.[A-Za-z][A-Za-z0-9_]*|@turn\.[a-z_]+|[A-Za-z_][A-Za-z0-9_]*/g;
export interface FunctionTold {
  name: string;
  /** With its arguments. */
  written: string;
  about: string;
}

export const FUNCTIONS: readonly FunctionTold[] = [
  { name: "min", written: "min(a, b, …)", about: "the least of 2 to 16 numbers" },
  { name: "max", written: "max(a, b, …)", about: "the greatest of 2 to 16 numbers" },
  { name: "abs", written: "abs(x)", about: "the number without its sign" },
  { name: "ceil", written: "ceil(x)", about: "rounded up" },
  { name: "floor", written: "floor(x)", about: "rounded down" },
  { name: "round", written: "round(x)", about: "to the nearest whole number, half to even" },
  { name: "float32", written: "float32(x)", about: "the nearest number of single precision" },
  {
    name: "flow_time",
    written: "flow_time(i, steps, shift)",
    about: "the i-th of `steps` timesteps from 1 (noise) to 0 (picture), shifted by `shift`",
  },
];
const NAMES = new Set(FUNCTIONS.map(({ name }) => name));

/**
 * A condition that never holds. It names the seed, which every task has, so that the checks don't take it for a slip
 * of the author: a muted Walk can be run.
 */
export const NEVER = "seed != seed";

/** The same expression, reading a loop's index under another name; texts in quotes stay. */
export function renameLoop(text: string, from: string, to: string): string {
  return text.replace(PART, (part) => (part === `@loop.${from}` ? `@loop.${to}` : part));
}

/** The same expression, reading a parameter under another name. */
export function renameParam(text: string, from: string, to: string): string {
  return text.replace(PART, (part, at: number) => (part === from && !isCall(text, part, at) ? to : part));
}

export function readsLoop(text: string, loop: string): boolean {
  return [...text.matchAll(PART)].some(([part]) => part === `@loop.${loop}`);
}

/** Both hold. */
export function both(first: string, second: string): string {
  return `(${first}) and (${second})`;
}

function isCall(text: string, part: string, at: number): boolean {
  return NAMES.has(part) && /^\s*\(/.test(text.slice(at + part.length));
}

/** The word that ends at a place of the text, as far as it is typed. */
export function wordBefore(text: string, at: number): string {
  return /(?:@[A-Za-z0-9_.]*|[A-Za-z_][A-Za-z0-9_]*)$/.exec(text.slice(0, at))?.[0] ?? "";
}

/** The names that complete the word before a place, those that begin with it first; all where there is none. */
export function completions<T extends { name: string }>(text: string, at: number, names: readonly T[]): readonly T[] {
  const word = wordBefore(text, at).toLowerCase();
  if (word === "") return names;
  const begins = names.filter(({ name }) => name.toLowerCase().startsWith(word));
  const inside = names.filter((one) => !begins.includes(one) && one.name.toLowerCase().includes(word));
  return [...begins, ...inside];
}

/** The text with the word before `from` completed to a name, and where the caret stands then. */
export function completed(text: string, from: number, to: number, name: string): { text: string; at: number } {
  const start = from - wordBefore(text, from).length;
  return { text: text.slice(0, start) + name + text.slice(to), at: start + name.length };
}
