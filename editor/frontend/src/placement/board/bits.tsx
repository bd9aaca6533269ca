// Small parts of the placement and deploy views.
import { CircleAlert, TriangleAlert } from "lucide-react";
import type { CSSProperties } from "react";
import type { Problem } from "../../messages/answers";
import { Button, Prose } from "../../ui/kit";
import { rankColor } from "../model/ranks";
import { strings } from "../../strings";

/** A rank: its number in its colour. */
export function RankMark({ rank }: { rank: number }) {
  return (
    <span className="wg-rank-mark" style={{ "--rank": rankColor(rank) } as CSSProperties}>
      <span className="visually-hidden">{strings.placement.rank3} </span>
      {rank}
    </span>
  );
}

export interface Action {
  label: string;
  run: () => void;
}

interface ProblemsProps {
  problems: readonly Problem[];
  /** The fixes for a problem. */
  actions: (problem: Problem) => Action[];
}

const MANY = 3;

/** Problems with what mends them; many of one kind are folded into one line. */
export function ProblemList({ problems, actions }: ProblemsProps) {
  if (problems.length === 0) return null;
  const codes = [...new Set(problems.map((problem) => problem.code))];
  const kinds = codes.map((code) => [code, problems.filter((problem) => problem.code === code)] as const);
  return (
    <ul className="wg-place-problems" aria-label={strings.placement.problems}>
      {kinds.map(([code, found]) =>
        found.length < MANY ? (
          found.map((problem) => (
            <ProblemNote key={problem.pointer + problem.message} problem={problem} actions={actions} />
          ))
        ) : (
          <li key={code}>
            <details className={found[0]?.severity}>
              <summary>
                <SeverityIcon problem={found[0]} />
                <span>
                  <b>{strings.placement.times(found.length)}</b> <Prose text={found[0]?.message ?? ""} />
                </span>
              </summary>
              <ul>
                {found.map((problem) => (
                  <ProblemNote key={problem.pointer + problem.message} problem={problem} actions={actions} />
                ))}
              </ul>
            </details>
          </li>
        ),
      )}
    </ul>
  );
}

function ProblemNote({ problem, actions }: { problem: Problem; actions: ProblemsProps["actions"] }) {
  return (
    <li className={`note ${problem.severity}`}>
      <SeverityIcon problem={problem} />
      <div>
        <p>
          <Prose text={problem.message} />
        </p>
        <div className="actions">
          {actions(problem).map((action) => (
            <Button key={action.label} onClick={action.run}>
              {action.label}
            </Button>
          ))}
        </div>
      </div>
    </li>
  );
}

function SeverityIcon({ problem }: { problem: Problem | undefined }) {
  const Icon = problem?.severity === "error" ? CircleAlert : TriangleAlert;
  return (
    <Icon
      size={14}
      role="img"
      aria-label={problem?.severity === "error" ? strings.placement.error : strings.placement.warning}
    />
  );
}
