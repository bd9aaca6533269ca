// Problems as a list: grouped by place, errors first, each with where it is shown. Pure.
import type { Problem } from "../../messages/answers";
import type { GraphDocument } from "../../document/types";
import { groupBy } from "../common/group";
import { locate, type Located } from "../../store/locate";

export interface Shown {
  problem: Problem;
  at: Located;
}

export interface Group {
  place: string;
  shown: Shown[];
}

/** The groups of those that have all `words`; places with errors first, then as they come. */
export function grouped(graph: GraphDocument, problems: readonly Problem[], words: string): Group[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const all = problems
    .map((problem) => ({ problem, at: locate(graph, problem.pointer) }))
    .filter(({ problem, at }) => {
      const text =
        `${problem.severity} ${problem.code} ${problem.message} ${at.place} ${at.part} ${problem.pointer}`.toLowerCase();
      return wanted.every((word) => text.includes(word));
    });
  const groups = [...groupBy(all, ({ at }) => at.place)].map(([place, shown]) => ({
    place,
    shown: shown.toSorted((a, b) => rank(a.problem) - rank(b.problem)),
  }));
  return groups.sort((a, b) => rank(a.shown[0]!.problem) - rank(b.shown[0]!.problem));
}

function rank(problem: Problem): number {
  return problem.severity === "error" ? 0 : 1;
}

/** The graph's problems, then those of its plan that the graph's don't say already. A plan's pointers into the graph
 * begin with `/graph`. */
export function together(checked: readonly Problem[], planned: readonly Problem[]): Problem[] {
  const key = ({ code, pointer }: Problem) => `${code} ${pointer}`;
  const known = new Set(checked.map(key));
  const more = planned.map((problem) =>
    problem.pointer.startsWith("/graph/") ? { ...problem, pointer: problem.pointer.slice("/graph".length) } : problem,
  );
  return [...checked, ...more.filter((problem) => !known.has(key(problem)))];
}
