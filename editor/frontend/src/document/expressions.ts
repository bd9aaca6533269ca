// Expressions as text: what they name, and the same text with a loop under another name. The grammar is the service's.

const PART =
  /'[^'\n]*'|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|@loop\.[A-Za-z][A-Za-z0-9_]*|@turn\.[a-z_]+|[A-Za-z_][A-Za-z0-9_]*/g;
const FUNCTIONS = new Set(["min", "max", "abs", "ceil", "floor", "round", "float32", "flow_time"]);

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
  return FUNCTIONS.has(part) && /^\s*\(/.test(text.slice(at + part.length));
}
