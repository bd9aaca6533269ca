// Reasons against deploying, from the plan, before it is tried. Pure.
import type { PlanShown } from "../messages/answers";
import type { Refusal } from "./actions";
import { strings } from "../strings";

const UNDEPLOYABLE = new Set(["unavailable", "no_weights", "no_tokenizer", "component_unavailable"]);

/** The reason from the plan; null if nothing prevents deploying. */
export function forecast(plan: PlanShown | null): Refusal | null {
  if (!plan || plan.deployable || plan.devices.some((device) => device.hypothetical)) return null;
  const problems = plan.problems.filter((problem) =>
    plan.ok ? UNDEPLOYABLE.has(problem.code) : problem.severity === "error",
  );
  const message = plan.ok ? strings.deploy.thisGraphCanBePlanned : strings.deploy.theseProblemsPrevent;
  return { message, problems };
}
