// What a plan says against deploying, before it is tried. Pure.
import type { PlanShown } from "../messages/answers";
import type { Refusal } from "./actions";

const UNDEPLOYABLE = new Set(["unavailable", "no_weights", "no_tokenizer", "component_unavailable"]);

/** What the plan says already; null: nothing speaks against deploying. */
export function forecast(plan: PlanShown | null): Refusal | null {
  if (!plan || plan.deployable || plan.devices.some((device) => device.hypothetical)) return null;
  const problems = plan.problems.filter((problem) =>
    plan.ok ? UNDEPLOYABLE.has(problem.code) : problem.severity === "error",
  );
  const message = plan.ok
    ? "It can be planned, but not run here."
    : "These keep it from running; each line leads to its place.";
  return { message, problems };
}
