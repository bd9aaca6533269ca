// How often a loop goes around, where its expression is plain arithmetic over a run's parameters. Pure; the grammar is
// the service's, and what of it isn't here (conditions, texts, loops' indices) has no answer.

const TOKEN = /\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|([A-Za-z_][A-Za-z0-9_]*)|(\/\/|[-+*/%(),]))/y;
const FUNCTIONS: Record<string, (...values: number[]) => number> = {
  min: Math.min,
  max: Math.max,
  abs: Math.abs,
  ceil: Math.ceil,
  floor: Math.floor,
};

/** Parameters of a run, by name. */
export type Values = Readonly<Record<string, unknown>>;

/** null: it is not known from these. */
export function timesOf(text: string, values: Values): number | null {
  const reader = new Reader(text, values);
  const value = reader.sum();
  return value !== null && reader.done && Number.isFinite(value) && value >= 0 ? Math.floor(value) : null;
}

class Reader {
  private at = 0;
  private token: string | null = null;

  constructor(
    private readonly text: string,
    private readonly values: Values,
  ) {
    this.next();
  }

  get done(): boolean {
    return this.token === null && this.text.slice(this.at).trim() === "";
  }

  sum(): number | null {
    let value = this.product();
    while (value !== null && (this.token === "+" || this.token === "-")) {
      const minus = this.take() === "-";
      const right = this.product();
      value = right === null ? null : minus ? value - right : value + right;
    }
    return value;
  }

  private product(): number | null {
    let value = this.factor();
    while (value !== null && this.token !== null && ["*", "/", "//", "%"].includes(this.token)) {
      const sign = this.take();
      const right = this.factor();
      if (right === null || (sign !== "*" && right === 0)) return null;
      if (sign === "*") value *= right;
      else if (sign === "/") value /= right;
      else value = sign === "//" ? Math.floor(value / right) : value - right * Math.floor(value / right);
    }
    return value;
  }

  private factor(): number | null {
    const token = this.take();
    if (token === null) return null;
    if (token === "-") {
      const value = this.factor();
      return value === null ? null : -value;
    }
    if (token === "(") {
      const value = this.sum();
      return this.take() === ")" ? value : null;
    }
    if (/^[\d.]/.test(token)) return Number(token);
    if (this.token === "(") return this.call(token);
    const value = Object.hasOwn(this.values, token) ? this.values[token] : null;
    return typeof value === "number" ? value : null;
  }

  private call(name: string): number | null {
    const made = Object.hasOwn(FUNCTIONS, name) ? FUNCTIONS[name] : undefined;
    const values: number[] = [];
    do {
      // The opening bracket, or the comma before the next.
      this.take();
      const value = this.sum();
      if (value === null) return null;
      values.push(value);
    } while (this.token === ",");
    return this.take() === ")" && made ? made(...values) : null;
  }

  private take(): string | null {
    const token = this.token;
    this.next();
    return token;
  }

  private next(): void {
    TOKEN.lastIndex = this.at;
    const found = TOKEN.exec(this.text);
    this.token = found ? (found[1] ?? found[2] ?? found[3] ?? null) : null;
    if (found) this.at = TOKEN.lastIndex;
  }
}
