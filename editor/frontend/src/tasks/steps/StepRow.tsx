// One Walk's step: which Walk, when, what it takes, what later steps call it.
import { ArrowUpRight, Check as Tick, CircleHelp, Minus } from "lucide-react";
import { useMemo } from "react";
import type { Problem } from "../../messages/answers";
import type { GraphDocument, Task } from "../../document/types";
import { useEditor, useEditorState } from "../../store/react";
import { Check, IconButton, Prose, Select } from "../../ui/kit";
import type { useTaskEdits } from "../model/actions";
import { BindingCell } from "./BindingCell";
import { Grip, MenuButton } from "./Grip";
import { finals, type Final } from "../model/outputs";
import { nameOf, type WalkRow } from "../model/rows";
import { reason, type Lit } from "../model/simulate";
import { indent, type RowHandle } from "./handle";
import { Modality, ProblemLines, TextCell } from "../cells/widgets";
import { strings } from "../../strings";

interface StepRowProps {
  graph: GraphDocument;
  task: Task;
  row: WalkRow;
  perChunk: boolean;
  columns: number;
  handle: RowHandle;
  edits: ReturnType<typeof useTaskEdits>;
  problems: readonly Problem[];
  lit: Lit | undefined;
  drop: string;
}

export function StepRow({ graph, task, row, perChunk, columns, handle, edits, problems, lit, drop }: StepRowProps) {
  const editor = useEditor();
  const catalogue = useEditorState((state) => state.catalogue);
  const { step } = row;
  const walk = graph.walks?.[step.walk];
  const sent = useMemo(() => finals(graph, catalogue, task, row), [graph, catalogue, task, row]);
  const what = strings.tasks.step(row.number, nameOf(row));
  const bad = (field: string) => problems.some((problem) => problem.pointer === `${row.pointer}/${field}`);
  const state = stateOf(lit);
  return (
    <>
      <tr data-pointer={row.pointer} className={`step ${state} ${drop} ${problems.length ? "faulty" : ""}`}>
        <td className="grip">
          <Grip row={row} what={what} handle={handle} edits={edits} />
          <StepMark number={row.number} lit={lit} />
        </td>
        <td style={{ paddingLeft: indent(row.depth) }}>
          <div className="walk">
            <Select
              aria-label={strings.tasks.walk(what)}
              aria-invalid={bad("walk")}
              value={step.walk}
              options={walkOptions(graph, step.walk)}
              onChange={(name) => edits.setWalk(row.pointer, name)}
            />
            <IconButton
              label={strings.tasks.openTheWalk(step.walk)}
              disabled={!walk}
              onClick={() => editor.open({ kind: "walk", walk: step.walk, inside: null })}
            >
              <ArrowUpRight size={14} />
            </IconButton>
          </div>
          <div className="about">
            {walk?.label && <span>{walk.label}</span>}
            {sent.length > 0 && <Finals sent={sent} />}
          </div>
          <LitNote lit={lit} when={step.when} />
        </td>
        <td>
          <TextCell
            live
            mono
            grows
            label={strings.tasks.condition(what)}
            value={step.when ?? ""}
            placeholder={row.choice !== null ? strings.tasks.otherwise : strings.tasks.always}
            invalid={bad("when")}
            onCommit={(value) => edits.setStep(row.pointer, { when: value || undefined }, `when ${row.pointer}`)}
          />
        </td>
        <td>
          <BindingCell
            {...{ graph, catalogue, task, row, problems }}
            onBind={(name, value) => edits.bind(row.pointer, name, value)}
          />
        </td>
        <td>
          <TextCell
            mono
            label={strings.tasks.nameOfForLaterSteps(what)}
            value={step.as ?? ""}
            placeholder={step.walk}
            invalid={bad("as")}
            onCommit={(value) => edits.nameStep(row, value || undefined)}
          />
        </td>
        {perChunk && (
          <td className="middle">
            <Check
              label={strings.tasks.onceForEachChunk(what)}
              checked={step.per === "chunk"}
              onChange={(on) => edits.setStep(row.pointer, { per: on ? "chunk" : undefined })}
            />
          </td>
        )}
        <td className="actions">
          <MenuButton row={row} what={what} handle={handle} />
        </td>
      </tr>
      {problems.length > 0 && (
        <tr className="faults">
          <td />
          <td colSpan={columns - 1} style={{ paddingLeft: indent(row.depth) }}>
            <ProblemLines problems={problems} />
          </td>
        </tr>
      )}
    </>
  );
}

function walkOptions(graph: GraphDocument, current: string) {
  const names = Object.keys(graph.walks ?? {});
  const known = names.map((name) => ({ value: name, label: name }));
  return names.includes(current)
    ? known
    : [{ value: current, label: strings.tasks.notInTheGraph(current) }, ...known];
}

function Finals({ sent }: { sent: readonly Final[] }) {
  const some = sent.some(({ wanted }) => wanted);
  return (
    <span className="finals" title={some ? strings.tasks.outputsOfTheTask : strings.tasks.notOutputsOfTheTask}>
      <span aria-hidden>→</span>
      {some && <span className="visually-hidden">{strings.tasks.gives}</span>}
      {sent.map(({ name, type, wanted }) => (
        <span key={name} className={wanted ? "" : "left-out"} aria-hidden={!wanted}>
          <Modality type={type ?? "tensor"} text={name} />
        </span>
      ))}
    </span>
  );
}

function stateOf(lit: Lit | undefined): "" | "ran" | "open" | "skipped" {
  if (!lit) return "";
  return lit.ran > 0 ? "ran" : lit.open > 0 ? "open" : "skipped";
}

function StepMark({ number, lit }: { number: number; lit: Lit | undefined }) {
  const state = stateOf(lit);
  return (
    <span className={`wg-step-mark ${state}`}>
      {state === "ran" ? (
        <Tick size={12} aria-hidden />
      ) : state === "skipped" ? (
        <Minus size={12} aria-hidden />
      ) : state === "open" ? (
        <CircleHelp size={12} aria-hidden />
      ) : (
        number
      )}
    </span>
  );
}

function LitNote({ lit, when }: { lit: Lit | undefined; when: string | null | undefined }) {
  if (!lit) return null;
  if (lit.ran === 0 && lit.open > 0)
    return (
      <div className="lit open">
        {strings.tasks.mayRun}
        {lit.why && ": "}
        <Prose text={reason(lit.why, when)} />
      </div>
    );
  if (lit.ran === 0)
    return (
      <div className="lit skipped">
        {strings.tasks.skipped2}
        {lit.why && ": "}
        <Prose text={reason(lit.why, when)} />
      </div>
    );
  if (lit.ran > 1 || lit.skipped > 0)
    return (
      <div className="lit ran">
        {strings.tasks.runs(lit.ran === 1 ? "once" : strings.tasks.times(lit.ran))}
        {lit.skipped > 0 &&
          strings.tasks.skippedWithValue(lit.skipped === 1 ? "once" : strings.tasks.times(lit.skipped))}
      </div>
    );
  return <span className="visually-hidden">{strings.tasks.runsInTheSimulation}</span>;
}
