// Which components make one port fit another, where a wire doesn't: found in the palette by the types of ports. Pure.
import type { Catalogue, Component } from "../../messages/answers";
import { accepts, parseType } from "../../document/typing";

/** A component in between: what comes goes into `input`, and leaves by `output`. */
export interface Step {
  component: string;
  input: string;
  output: string;
}

export type Between = readonly Step[];

const SHOWN = 6;

/** One component between the two ports, or else two; the likeliest first. `used`: components of the graph. */
export function between(catalogue: Catalogue, from: string, to: string, used: ReadonlySet<string>): Between[] {
  const known = Object.values(catalogue).filter(
    (one) => one.available && !one.task && one.category !== "Testing" && !one.former?.includes(one.name),
  );
  const steps = known.flatMap((one) => throughs(one, used.has(one.name) ? 0 : rankOf(one)));
  const first = steps.filter(({ takes }) => fits(takes, from));
  const singles = first.filter(({ gives }) => fits(to, gives));
  if (singles.length > 0) return distinct(singles.map((one) => [one]));
  const last = steps.filter(({ gives }) => fits(to, gives));
  const pairs = first.flatMap((one) =>
    last.flatMap((other) =>
      one.step.component !== other.step.component && fits(other.takes, one.gives) ? [[one, other]] : [],
    ),
  );
  return distinct(pairs);
}

/** The components that the graph doesn't have yet: first what needs no weights, last what calls others. */
function rankOf({ weights, category }: Component): number {
  if (category === "Calls" || category === "Agent") return 3;
  return weights === null ? 1 : 2;
}

interface Through {
  step: Step;
  rank: number;
  takes: string;
  gives: string;
}

/** The ways through a component that needs no other input. */
function throughs({ name, inputs, outputs }: Component, rank: number): Through[] {
  const needed = inputs.filter((port) => !port.optional);
  if (needed.length > 1) return [];
  const entries = needed.length === 1 ? needed : inputs;
  return entries.flatMap((input) =>
    outputs.flatMap((output) =>
      input.type && output.type && !input.of && !output.of
        ? [
            {
              step: { component: name, input: input.name, output: output.name },
              rank,
              takes: input.type,
              gives: output.type,
            },
          ]
        : [],
    ),
  );
}

function fits(target: string, source: string): boolean {
  return parseType(target) !== null && parseType(source) !== null && accepts(target, source) === null;
}

/** Each chain of components once: the ports declared first. */
function distinct(found: readonly (readonly Through[])[]): Between[] {
  const cost = (way: readonly Through[]) => way.reduce((sum, { rank }) => sum + rank, 0);
  const seen = new Map<string, Between>();
  for (const way of [...found].sort((a, b) => cost(a) - cost(b))) {
    const steps = way.map(({ step }) => step);
    const key = steps.map(({ component }) => component).join(" ");
    if (!seen.has(key)) seen.set(key, steps);
  }
  return [...seen.values()].slice(0, SHOWN);
}
