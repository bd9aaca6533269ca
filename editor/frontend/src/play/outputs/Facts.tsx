// Outputs that are one number or one yes or no, beside each other.
import { labelOf } from "../model/form";
import type { OutputShown } from "../model/types";

/** True if the only output is one value that needs no view of its own. */
export function isFact({ made, left, text }: OutputShown): boolean {
  return made.length === 1 && left === 0 && !text && factOf(made[0]?.value ?? {}) !== null;
}

/** In words; null for other kinds of values. */
export function factOf(value: object): string | null {
  const fact: unknown = "value" in value ? value.value : null;
  if (typeof fact === "boolean") return fact ? "yes" : "no";
  return typeof fact === "number" ? String(Number(fact.toPrecision(6))) : null;
}

export function Facts({ outputs }: { outputs: readonly OutputShown[] }) {
  return (
    <dl className="wg-play-facts">
      {outputs.map(({ name, made }) => (
        <div key={name} role="group" aria-label={labelOf(name)}>
          <dt>{labelOf(name)}</dt>
          <dd>{factOf(made[0]?.value ?? {})}</dd>
        </div>
      ))}
    </dl>
  );
}
