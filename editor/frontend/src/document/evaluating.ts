// The value of an expression, as `walkgraph.graph.language.expressions` computes it; null where that gives none. Pure.

export type Scalar = number | boolean | string;

/** The value for these parameters and indices of loops (`index` is the innermost). */
export function evaluate(
  text: string,
  params: Readonly<Record<string, Scalar>>,
  loops: Readonly<Record<string, number>>,
): Scalar | null {
  try {
    const reader = new Reader(tokens(text), params, loops);
    const run = reader.level(0);
    return reader.done() ? run() : null;
  } catch (fault) {
    if (fault instanceof NoValue) return null;
    throw fault;
  }
}

class NoValue extends Error {}

function none(): never {
  throw new NoValue();
}

type Run = () => Scalar;

const TOKEN =
  /\s*(?:((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|('[^'\n]*')|(@loop\.[A-Za-z][A-Za-z0-9_]*)|([A-Za-z_][A-Za-z0-9_]*)|(\/\/|<=|>=|==|!=|[-+*/%<>(),]))/y;
const COMPARED = ["<", "<=", ">", ">=", "==", "!="];
const LEVELS = [["or"], ["and"], ["not"], COMPARED, ["+", "-"], ["*", "/", "//", "%"]];
const WORDS = ["or", "and", "not", "true", "false"];

interface Token {
  kind: "number" | "text" | "loop" | "name" | "op";
  text: string;
}

const KINDS = ["number", "text", "loop", "name", "op"] as const;

function tokens(text: string): Token[] {
  const found: Token[] = [];
  TOKEN.lastIndex = 0;
  while (text.slice(TOKEN.lastIndex).trim() !== "") {
    const match = TOKEN.exec(text);
    if (!match) none();
    const at = match.slice(1).findIndex((part) => part !== undefined);
    found.push({ kind: KINDS[at]!, text: match[at + 1]! });
  }
  return found;
}

class Reader {
  private next = 0;

  constructor(
    private readonly all: readonly Token[],
    private readonly params: Readonly<Record<string, Scalar>>,
    private readonly loops: Readonly<Record<string, number>>,
  ) {}

  done(): boolean {
    return this.next === this.all.length;
  }

  level(level: number): Run {
    const ops = LEVELS[level];
    if (!ops) return this.sign();
    if (ops[0] === "not") {
      if (!this.takes("not")) return this.level(level + 1);
      const operand = this.level(level);
      return () => !flag(operand());
    }
    let left = this.level(level + 1);
    if (ops === COMPARED) return this.compared(left, level);
    for (let op = this.one(ops); op !== null; op = this.one(ops)) {
      const [first, second, sign] = [left, this.level(level + 1), op];
      left =
        sign === "or" || sign === "and"
          ? logic(sign === "or", first, second)
          : () => arithmetic(sign, first(), second());
    }
    return left;
  }

  private compared(first: Run, level: number): Run {
    const rest: [string, Run][] = [];
    for (let op = this.one(COMPARED); op !== null; op = this.one(COMPARED)) rest.push([op, this.level(level + 1)]);
    if (rest.length === 0) return first;
    return () => {
      let left = first();
      for (const [op, run] of rest) {
        const right = run();
        if (!holds(op, left, right)) return false;
        left = right;
      }
      return true;
    };
  }

  private sign(): Run {
    if (!this.takes("-")) return this.atom();
    const operand = this.sign();
    return () => arithmetic("-", 0, operand());
  }

  private atom(): Run {
    const token = this.all[this.next++] ?? none();
    const { kind, text } = token;
    if (kind === "number") return () => Number(text);
    if (kind === "text") return () => text.slice(1, -1);
    if (kind === "loop") return () => this.loops[text.slice("@loop.".length)] ?? none();
    if (text === "(") {
      const inside = this.level(0);
      if (!this.takes(")")) none();
      return inside;
    }
    if (kind !== "name") none();
    if (text === "true" || text === "false") return () => text === "true";
    if (WORDS.includes(text)) none();
    if (this.takes("(")) return this.call(text);
    return () => this.params[text] ?? none();
  }

  private call(name: string): Run {
    const given: Run[] = [];
    while (!this.takes(")")) {
      given.push(this.level(0));
      if (this.all[this.next]?.text !== ")" && !this.takes(",")) none();
    }
    const [least, most, apply] = FUNCTIONS[name] ?? none();
    if (given.length < least || given.length > most) none();
    return () => finite(apply(...given.map((run) => number(run()))));
  }

  private one(ops: readonly string[]): string | null {
    return ops.find((op) => this.takes(op)) ?? null;
  }

  private takes(text: string): boolean {
    const token = this.all[this.next];
    if (!token || token.text !== text || (token.kind !== "op" && token.kind !== "name")) return false;
    this.next += 1;
    return true;
  }
}

function number(value: Scalar): number {
  return typeof value === "number" ? value : none();
}

function flag(value: Scalar): boolean {
  return typeof value === "boolean" ? value : none();
}

function finite(value: number): number {
  return Number.isFinite(value) ? value : none();
}

function logic(stop: boolean, left: Run, right: Run): Run {
  return () => {
    const first = left();
    if (first === stop) return stop;
    const second = right();
    flag(first);
    return flag(second);
  };
}

function holds(op: string, a: Scalar, b: Scalar): boolean {
  if (op === "==" || op === "!=") {
    if (typeof a !== typeof b) none();
    return (a === b) === (op === "==");
  }
  const [x, y] = [number(a), number(b)];
  return op === "<" ? x < y : op === "<=" ? x <= y : op === ">" ? x > y : x >= y;
}

function arithmetic(op: string, left: Scalar, right: Scalar): number {
  const [a, b] = [number(left), number(right)];
  if ((op === "/" || op === "//" || op === "%") && b === 0) none();
  const made = { "+": a + b, "-": a - b, "*": a * b, "/": a / b, "//": floorOf(a, b), "%": rest(a, b) }[op];
  return finite(made ?? none());
}

/** With the sign of `b`. */
function rest(a: number, b: number): number {
  const found = a % b;
  return found !== 0 && found < 0 !== b < 0 ? found + b : found;
}

function floorOf(a: number, b: number): number {
  const whole = (a - rest(a, b)) / b;
  const floor = Math.floor(whole);
  return whole - floor > 0.5 ? floor + 1 : floor;
}

/** Half to even. */
function round(x: number): number {
  const floor = Math.floor(x);
  const over = x - floor;
  return over < 0.5 || (over === 0.5 && floor % 2 === 0) ? floor : floor + 1;
}

function flowTime(i: number, steps: number, shift: number): number {
  const f = Math.fround;
  if (steps === 1) none();
  const step = f(-1 / (steps - 1));
  const t = i < Math.floor(steps / 2) ? f(1 + step * i) : f(-step * (steps - 1 - i));
  const below = f(1 + f(f(shift - 1) * t));
  if (below === 0) none();
  return f(f(f(shift) * t) / below);
}

/** Name -> the fewest and most arguments, and the function. */
const FUNCTIONS: Readonly<Record<string, [number, number, (...given: number[]) => number]>> = {
  min: [2, 16, Math.min],
  max: [2, 16, Math.max],
  abs: [1, 1, Math.abs],
  ceil: [1, 1, Math.ceil],
  floor: [1, 1, Math.floor],
  round: [1, 1, round],
  float32: [1, 1, Math.fround],
  flow_time: [3, 3, flowTime as (...given: number[]) => number],
};

export const FUNCTION_NAMES = Object.keys(FUNCTIONS);
