// JSON pointers (RFC 6901).
import type { Pointer } from "./types";

export function split(pointer: Pointer): string[] {
  return pointer
    .split("/")
    .slice(1)
    .map((part) => part.replace(/~1/g, "/").replace(/~0/g, "~"));
}

export function join(...parts: (string | number)[]): Pointer {
  return parts.map((part) => `/${String(part).replace(/~/g, "~0").replace(/\//g, "~1")}`).join("");
}

/** True if it is the place or inside it. */
export function isUnder(pointer: Pointer, place: Pointer): boolean {
  return pointer === place || pointer.startsWith(`${place}/`);
}

/** The value at a place, or undefined where there is none. */
export function at(value: unknown, pointer: Pointer): unknown {
  return split(pointer).reduce<unknown>(
    (found, part) =>
      typeof found === "object" && found !== null ? (found as Record<string, unknown>)[part] : undefined,
    value,
  );
}
