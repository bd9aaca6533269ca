// The Walks that a simulated request runs, in order; skipped ones with the reason, loops with how often.
import { ChevronRight, TriangleAlert } from "lucide-react";
import type { Problem } from "../../messages/answers";
import { factsOf } from "../../document/routes";
import { locate, go } from "../../store/locate";
import { useEditor, useEditorState } from "../../store/react";
import { Badge, Prose } from "../../ui/kit";
import { showBytes, showSeconds } from "../../ui/words";
import { reason, totals, type HostCostShown, type Simulated, type SimulatedStep } from "../model/simulate";
import type { Simulation } from "./useSimulation";
import { Modality } from "../cells/widgets";
import { strings } from "../../strings";

export function SimulatorResult({ name, simulation }: { name: string; simulation: Simulation }) {
  const { answer, failure, asking } = simulation;
  return (
    <div className={`result ${asking ? "asking" : ""}`} aria-live="polite" aria-busy={asking}>
      {failure !== null && (
        <p className="failure" role="alert">
          <TriangleAlert size={14} aria-hidden /> {strings.tasks.noSimulation(failure)}
        </p>
      )}
      {answer && (answer.ok ? <Ran answer={answer} /> : <Problems problems={answer.problems} />)}
      {!answer && failure === null && <p className="hint">{strings.tasks.simulating(name)}</p>}
    </div>
  );
}

function Problems({ problems }: { problems: readonly Problem[] }) {
  const editor = useEditor();
  const errors = problems.filter((problem) => problem.severity === "error");
  const show = (pointer: string) => {
    // Places of the request, not of the graph, are right beside.
    if (pointer.startsWith("/graph/")) go(editor, locate(editor.graph, pointer.slice("/graph".length)));
  };
  return (
    <div className="problems">
      <p>{strings.tasks.thisCantRunYet}</p>
      <ul>
        {errors.map((problem) => (
          <li key={`${problem.code} ${problem.pointer}`}>
            <button type="button" onClick={() => show(problem.pointer)}>
              <TriangleAlert size={13} aria-hidden />
              <span>
                <Prose text={problem.message} />
                <code className="place">{problem.pointer.replace(/^\/graph(?=\/)/, "")}</code>
              </span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Ran({ answer }: { answer: Simulated }) {
  const { ran, skipped, open } = totals(answer);
  return (
    <>
      <p className="totals">
        <b>
          {ran === 0 ? strings.tasks.noWalkRuns : ran === 1 ? strings.tasks.n1WalkRuns : strings.tasks.walksRun(ran)}
        </b>
        {open > 0 && <span className="note">{strings.tasks.mayRunToo(open)}</span>}
        {skipped > 0 && <span className="note">{strings.tasks.skipped(skipped)}</span>}
        {answer.between_hosts != null && (
          <span className="note" title={strings.tasks.timeOfValuesBetweenHosts}>
            {strings.tasks.betweenHosts(showSeconds(answer.between_hosts))}
          </span>
        )}
      </p>
      {answer.lanes.map(({ lane, steps }) => (
        <section key={lane} aria-label={lane || strings.tasks.steps}>
          {lane && <h3>{lane}</h3>}
          <ol>
            {steps.map((step, index) => (
              <StepShown key={index} step={step} />
            ))}
          </ol>
        </section>
      ))}
    </>
  );
}

function StepShown({ step }: { step: SimulatedStep }) {
  const editor = useEditor();
  const loops = Object.entries(step.loops);
  const body = useEditorState((state) => state.documents.graph.walks?.[step.walk]);
  const isMap = (loop: string) => body !== undefined && factsOf(body).maps.has(loop);
  const open = () => editor.open({ kind: "walk", walk: step.walk, inside: null });
  return (
    <li className={step.taken === null ? "open" : step.taken ? "ran" : "skipped"}>
      <div className="head">
        <button type="button" className="walk" onClick={open} title={strings.tasks.openTheWalk(step.walk)}>
          {step.walk}
        </button>
        {step.as && step.as !== step.walk && <span className="note">{strings.tasks.as(step.as)}</span>}
        {step.turn && <span className="note">{strings.tasks.turnOfRole(step.turn.index + 1, step.turn.role)}</span>}
        {step.part && <Modality type={step.part.modality} text={strings.tasks.part(step.part.index + 1)} />}
        {step.taken !== false &&
          loops.map(([loop, times]) => (
            <Badge
              key={loop}
              title={
                times === null
                  ? strings.tasks.howOftenTheLoopRuns(loop)
                  : isMap(loop)
                    ? strings.tasks.theMapTakesAtMost(loop, times)
                    : strings.tasks.theLoopRunsAtMost(loop, times)
              }
            >
              {loop} {isMap(loop) ? "≤" : "×"} {times ?? "?"}
            </Badge>
          ))}
      </div>
      {step.taken === null && (
        <p className="why">
          {strings.tasks.mayRun}
          {step.why && ": "}
          <Prose text={reason(step.why)} />
        </p>
      )}
      {step.taken !== false ? (
        <>
          <Uses step={step} />
          <HostCosts costs={step.host_costs ?? []} />
        </>
      ) : (
        <p className="why">
          {strings.tasks.skipped2}
          {step.why && ": "}
          <Prose text={reason(step.why)} />
        </p>
      )}
    </li>
  );
}

/** What goes from host to host in a step. */
export function HostCosts({ costs }: { costs: readonly HostCostShown[] }) {
  if (costs.length === 0) return null;
  return (
    <details className="uses">
      <summary>
        <ChevronRight size={12} aria-hidden /> {strings.tasks.goBetweenHosts(costs.length)}
      </summary>
      <ul>
        {costs.map(({ what, source, target, times, bytes, seconds }, index) => (
          <li key={index}>
            <b aria-hidden>→</b>
            <span className="use">{what}</span>
            <span className="note">
              {source} → {target} × {times ?? "?"}
              {bytes !== null && `, ${showBytes(bytes)}`}
            </span>
            <span className="why">{seconds !== null && strings.tasks.atLeastSeconds(showSeconds(seconds))}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

const MARKS = { true: "✓", false: "–", null: "◐" } as const;
const WORDS = { true: "runs", false: strings.tasks.isSkipped, null: strings.tasks.mayRunHere } as const;

function Uses({ step }: { step: SimulatedStep }) {
  if (step.uses.length === 0) return null;
  const skipped = step.uses.filter((use) => use.taken === false).length;
  const depends = step.uses.filter((use) => use.taken === null).length;
  const parts = [
    ...(skipped + depends ? [strings.tasks.run(step.uses.length - skipped - depends)] : []),
    ...(skipped ? [strings.tasks.skippedWithSkipped(skipped)] : []),
    ...(depends ? [strings.tasks.someMayRun(depends)] : []),
  ];
  const all = `${step.uses.length} ${step.uses.length === 1 ? "use" : "uses"}`;
  return (
    <details className="uses">
      <summary>
        <ChevronRight size={12} aria-hidden /> {[all, parts.join(", ")].filter(Boolean).join(": ")}
      </summary>
      <ul>
        {step.uses.map((use, index) => {
          const key = String(use.taken) as keyof typeof MARKS;
          return (
            <li key={index} className={key}>
              <b aria-hidden>{MARKS[key]}</b>
              <span className="use">{use.use}</span>
              <span className="note">
                {use.node !== use.use && `${use.node} `}
                {use.iterations !== null && use.iterations > 1 && `× ${use.iterations}`}
              </span>
              <span className="why">
                <span className="visually-hidden">{WORDS[key]} </span>
                {use.why !== "always" && <Prose text={reason(use.why)} />}
              </span>
            </li>
          );
        })}
      </ul>
    </details>
  );
}
