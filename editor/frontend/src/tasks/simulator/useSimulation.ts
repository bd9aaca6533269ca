// The simulation of one task: asked again when the graph or the choice changes, the answer to an older one dropped.
import { useEffect, useState } from "react";
import { ApiError, call } from "../../api/client";
import type { GraphDocument, Task } from "../../document/types";
import { requestOf, type Choice, type Place, type Simulated } from "../model/simulate";
import { strings } from "../../strings";

/** After the last change, in ms. */
const PAUSE_MS = 250;

export interface Simulation {
  answer: Simulated | null;
  /** The newest answer without problems: what rows show meanwhile, so that they don't move while the user edits. */
  last: Simulated | null;
  /** Why there is no answer, in words for the user. */
  failure: string | null;
  asking: boolean;
}

const NOTHING: Simulation = { answer: null, last: null, failure: null, asking: false };

export function useSimulation(
  graph: GraphDocument,
  name: string,
  task: Task | undefined,
  choice: Choice,
  place: Place,
): Simulation {
  const [simulation, setSimulation] = useState(NOTHING);
  useEffect(() => setSimulation(NOTHING), [name]);
  useEffect(() => {
    if (!task) return;
    const control = new AbortController();
    const timer = setTimeout(() => {
      setSimulation((now) => ({ ...now, asking: true }));
      const body = { ...requestOf(graph, name, task, choice), ...place };
      call<Simulated>("/api/v1/graphs/simulate", { method: "POST", body, signal: control.signal }).then(
        ({ value }) =>
          setSimulation(({ last }) => ({
            answer: value,
            last: value.ok ? value : last,
            failure: null,
            asking: false,
          })),
        (error: unknown) => {
          if (control.signal.aborted) return;
          setSimulation(({ last }) => ({ answer: null, last, failure: said(error), asking: false }));
        },
      );
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [graph, name, task, choice, place]);
  return simulation;
}

function said(error: unknown): string {
  if (!(error instanceof ApiError)) return strings.tasks.theAnswerCouldNot;
  const faults = error.problems.map((problem) => `${problem.pointer} ${problem.message}`.trim());
  return faults.length > 0 ? `${error.message}: ${faults.join("; ")}` : error.message;
}
