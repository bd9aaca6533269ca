// Loop, Parallel, Sequence, Choice and its branches: a box around what they hold, its rules editable in its head.
import { Handle, Position, type NodeProps } from "@xyflow/react";
import {
  ChevronDown,
  ChevronRight,
  CornerDownRight,
  List,
  Maximize2,
  Repeat,
  Signpost,
  Split,
  type LucideIcon,
} from "lucide-react";
import { memo } from "react";
import { LoopMarks } from "../../debug/marks";
import { setItem } from "../../document/edits/items";
import { setClosed } from "../../document/edits/parts/layout";
import { loopMark, loopReason, loopShown } from "../../session/loops";
import { useEditor, useEditorState } from "../../store/react";
import { attempt } from "../gestures/attempt";
import { CONTAINER_HEAD, RAIL } from "../shapes/geometry";
import { worst } from "../model/problems";
import type { CanvasNode, ContainerData } from "../shapes/types";
import { BranchHead, ChoiceFoot, ChoiceHead, ChoicePort, RemoveBranch, useTaken } from "./ChoiceNodes";
import { InPlace } from "./InPlace";
import { LiveTogether, LoopAt } from "./live";
import { Changed, Ports, Problems, portTitle } from "./parts";
import { strings } from "../../strings";

const ICONS: Record<ContainerData["container"], LucideIcon> = {
  loop: Repeat,
  parallel: Split,
  sequence: List,
  choose: Signpost,
  case: CornerDownRight,
  otherwise: CornerDownRight,
};
const TEACH = {
  loop: strings.canvas.dropTheStepsToRepeat,
  parallel: strings.canvas.dropStepsHereEach,
  sequence: strings.canvas.dropStepsHereTheyRun,
  choose: strings.canvas.addACaseBelow,
  case: strings.canvas.dropTheStepsForThisValue,
  otherwise: strings.canvas.dropTheStepsForOtherValues,
};

export const ContainerNode = memo(function ContainerNode({ data }: NodeProps<CanvasNode>) {
  const box = data as ContainerData;
  const editor = useEditor();
  const Icon = ICONS[box.container];
  const set = (fields: Record<string, unknown>) =>
    attempt(editor, strings.canvas.changeAContainer, (graph) => setItem(graph, box.walk, box.id, fields));
  const toggle = () =>
    editor.editGraph(box.closed ? strings.canvas.openAContainer : strings.canvas.closeAContainer, (graph) =>
      setClosed(graph, editor.state.view.canvas, box.id, !box.closed),
    );
  const enter = () => editor.open({ kind: "walk", walk: box.walk, inside: box.id });
  const kinds = [box.container, box.closed ? "closed" : "", box.muted, worst(box.problems), useTaken(box)];
  return (
    <div className={`wg-container ${kinds.filter(Boolean).join(" ")}`}>
      {box.choice && !box.closed && <ChoicePort box={box} />}
      <LoopMarks
        walk={box.walk}
        loop={box.container === "loop" ? box.name : ""}
        closed={box.closed}
        nodes={box.nodes}
      />
      <header className="wg-container-head">
        <button
          type="button"
          className="nodrag wg-mini"
          aria-expanded={!box.closed}
          aria-label={
            box.closed
              ? strings.canvas.openWithName(box.container, box.name)
              : strings.canvas.closeWithName(box.container, box.name)
          }
          title={box.closed ? strings.canvas.open : strings.canvas.close}
          onClick={toggle}
        >
          {box.closed ? <ChevronRight size={14} /> : <ChevronDown size={14} />}
        </button>
        <Icon size={14} aria-hidden />
        {box.choice && <ChoiceHead box={box} />}
        {box.branch && <BranchHead box={box} />}
        {box.choice || box.branch ? null : box.container === "loop" ? (
          <>
            <InPlace
              className="name"
              label={strings.canvas.loopsName}
              value={box.name}
              onChange={(loop) => set({ loop })}
            />
            <span aria-hidden>×</span>
            <InPlace
              className="code"
              label={strings.canvas.howManyTimes}
              value={box.times}
              onChange={(times) => set({ times })}
            />
            {box.until && (
              <>
                <span>{strings.canvas.until}</span>
                <InPlace
                  className="code"
                  label={strings.canvas.portThatEndsTheLoop}
                  value={box.until}
                  onChange={(until) => set({ until: until || null })}
                />
              </>
            )}
          </>
        ) : (
          <strong>{box.container === "parallel" ? strings.canvas.atTheSameTime : strings.canvas.inOrder}</strong>
        )}
        {box.muted && <span className="wg-tag">{box.muted}</span>}
        <i className="wg-grow" />
        {box.closed && <Changed nodes={box.nodes} />}
        <Problems problems={box.problems} />
        {box.branch && <RemoveBranch box={box} />}
        <button
          type="button"
          className="nodrag wg-mini"
          aria-label={strings.canvas.enter(box.container, box.name)}
          title={strings.canvas.enterShowOnlyItsContents}
          onClick={enter}
        >
          <Maximize2 size={12} />
        </button>
      </header>
      {(box.container === "loop" || box.when || box.closed) && (
        <div className="wg-rail" style={{ height: RAIL }}>
          {box.index && <IndexPort port={box.index} />}
          {box.when && (
            <span className="wg-when">
              <b>{strings.canvas.when}</b>
              <InPlace
                className="code"
                label={strings.canvas.condition}
                value={box.when}
                onChange={(when) => set({ when: when || null })}
              />
            </span>
          )}
          {box.container === "loop" && <IteratedMark walk={box.walk} loop={box.name} />}
          {box.dropLast && box.container === "loop" && (
            <span className="wg-tag" title={strings.canvas.theLastIterationsOutputs}>
              {strings.canvas.dropsLast}
            </span>
          )}
          {box.container === "loop" && <LoopAt walk={box.walk} loop={box.name} />}
          {box.closed && (
            <small>{box.count === 1 ? strings.canvas.n1StepInside : strings.canvas.stepsInside(box.count)}</small>
          )}
        </div>
      )}
      {box.closed && (
        <>
          <div className="wg-rows">
            <Ports inputs={box.inputs} outputs={box.outputs} top={CONTAINER_HEAD + RAIL + 2} />
          </div>
          <div className="wg-foot">
            <LiveTogether nodes={box.nodes} />
          </div>
        </>
      )}
      {box.choice && !box.closed && <ChoiceFoot box={box} />}
      {box.empty && !box.closed && <p className="wg-teach">{TEACH[box.container]}</p>}
      {box.container === "parallel" &&
        !box.closed &&
        box.branches.map((branch, index) => (
          <b
            key={index}
            className="wg-branch"
            style={{ top: branch.y, height: branch.h }}
            title={strings.canvas.branch(index + 1)}
          >
            {index + 1}
          </b>
        ))}
      <div className="wg-far" aria-hidden>
        {box.name || box.container}
      </div>
    </div>
  );
});

/** Where the loop is iterated, once that is planned. */
function IteratedMark({ walk, loop }: { walk: string; loop: string }) {
  const shown = useEditorState((state) => loopShown(state, walk, loop));
  return (
    shown && (
      <span className={`wg-tag wg-iterated ${shown.resident ? "resident" : ""}`} title={loopReason(shown)}>
        {loopMark(shown)}
      </span>
    )
  );
}

function IndexPort({ port }: { port: NonNullable<ContainerData["index"]> }) {
  return (
    <span className={port.wired ? "wg-index wired" : "wg-index"} title={portTitle(port)}>
      {strings.canvas.index}
      <Handle type="source" position={Position.Right} id={port.ref} aria-label={strings.canvas.outputIndexScalar} />
    </span>
  );
}
