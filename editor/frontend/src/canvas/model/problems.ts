// Which problem belongs to what on the canvas, by the pointers that both have. Pure.
import type { Problem } from "../../messages/answers";
import { isUnder } from "../../document/pointer";

/** Problems at or below a pointer, and of those only what no deeper one of `owners` takes. */
export class Located {
  private readonly problems: readonly Problem[];

  constructor(problems: readonly Problem[]) {
    this.problems = problems;
  }

  /** At or below `pointer`. */
  under(pointer: string): Problem[] {
    return this.problems.filter((problem) => isUnder(problem.pointer, pointer));
  }

  /** At or below `pointer`, but not below one of `deeper`. */
  own(pointer: string, deeper: readonly string[]): Problem[] {
    return this.under(pointer).filter((problem) => !deeper.some((other) => isUnder(problem.pointer, other)));
  }
}

export function worst(problems: readonly Problem[]): "" | "error" | "warning" {
  if (problems.some((problem) => problem.severity === "error")) return "error";
  return problems.length ? "warning" : "";
}

export function told(problems: readonly Problem[]): string {
  return problems.map((problem) => problem.message).join("\n");
}
