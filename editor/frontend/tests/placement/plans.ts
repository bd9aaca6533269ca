// Plans in plans.json are the service's answers for graphs/bagel.json, without the drawing.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { PlanShown, Problem } from "../../src/messages/answers";
import type { GraphDocument } from "../../src/document/types";
import type { PlacementDocument } from "../../src/document/placement/schema.generated";

export const ROOT = join(import.meta.dirname, "../../../..");
export const graph: GraphDocument = JSON.parse(readFileSync(join(ROOT, "graphs/bagel.json"), "utf8"));
const cases: Record<string, { placement: PlacementDocument; hardware: string; plan: PlanShown }> = JSON.parse(
  readFileSync(join(import.meta.dirname, "plans.json"), "utf8"),
);
export const found = (name: string) => cases[name] as (typeof cases)[string];

export function problem(name: string, code: string): Problem {
  const all = found(name).plan.problems.filter((entry) => entry.code === code);
  if (!all[0]) throw new Error(`${name} has no ${code}`);
  return all[0];
}
