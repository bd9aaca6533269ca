// A document as text, laid out as the service's `dumps` does: two spaces, short lists and objects on one line. Pure.
import type { Sources } from "../document/json";
import { join } from "../document/pointer";
import type { Pointer } from "../document/types";

const WIDTH = 118;
/** For lists that hold lists or objects. */
const NARROW = 80;

/** Without a newline at the end. `sources`: how numbers were written, for those that nobody changed. */
export function pretty(value: unknown, sources: Sources = new Map()): string {
  const number = (child: number, here: Pointer) => {
    const source = sources.get(here);
    return source !== undefined && Number(source) === child ? source : spell(child);
  };
  const line = (child: unknown, here: Pointer): string => {
    if (typeof child === "number") return number(child, here);
    if (Array.isArray(child)) return `[${child.map((entry, i) => line(entry, here + join(i))).join(", ")}]`;
    if (!isContainer(child)) return JSON.stringify(child);
    const entries = entriesOf(child).map(
      ([key, entry]) => `${JSON.stringify(key)}: ${line(entry, here + join(key))}`,
    );
    return `{${entries.join(", ")}}`;
  };
  const write = (child: unknown, here: Pointer, indent: number, used: number): string => {
    if (!isContainer(child) || entriesOf(child).length === 0) return line(child, here);
    const listed = Array.isArray(child);
    if (isFlat(child, 2)) {
      const text = line(child, here);
      const width = !listed || isFlat(child, 1) ? WIDTH : NARROW;
      if (indent + used + length(text) <= width) return listed ? text : `{ ${text.slice(1, -1)} }`;
    }
    const inner = " ".repeat(indent + 2);
    const lines = entriesOf(child).map(([key, entry]) => {
      const head = listed ? "" : `${JSON.stringify(key)}: `;
      return inner + head + write(entry, here + join(key), indent + 2, length(head));
    });
    const [opening, closing] = listed ? ["[", "]"] : ["{", "}"];
    return [opening, lines.join(",\n"), " ".repeat(indent) + closing].join("\n");
  };
  return write(value, "", 0, 0);
}

/** As Python writes numbers: `1e-05`, and whole ones without a point. */
function spell(value: number): string {
  if (Number.isInteger(value)) return Object.is(value, -0) ? "0" : BigInt(value).toString();
  const [mantissa = "", exponent = "0"] = value.toExponential().split("e");
  const power = Number(exponent);
  if (power >= -4) return String(value);
  return `${mantissa}e-${String(-power).padStart(2, "0")}`;
}

function isContainer(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function entriesOf(value: object): [string, unknown][] {
  return Object.entries(value).filter(([, entry]) => entry !== undefined);
}

/** True if at most `levels` containers are nested. */
function isFlat(value: unknown, levels: number): boolean {
  if (!isContainer(value)) return true;
  return levels > 0 && entriesOf(value).every(([, entry]) => isFlat(entry, levels - 1));
}

/** In characters, as Python counts them. */
function length(text: string): number {
  return [...text].length;
}
