// Loop, Map, Parallel, Sequence, Choice and its branches: a box around what they hold, its rules editable in its head.
import { Handle, Position, type NodeProps } from "@xyflow/react";
import {
  ChevronDown,
  ChevronRight,
  CornerDownRight,
  Layers,
  List,
  Maximize2,
  Repeat,
  Signpost,
  Split,
  type LucideIcon,
} from "lucide-react";
import { memo } from "react";
import { LoopMarks } from "../../debug/marks";
import { setClosed } from "../../document/edits/parts/layout";
import { isLoop } from "../../document/tree";
import { loopMark, loopReason, loopShown } from "../../session/loops";
import { useEditor, useEditorState } from "../../store/react";
import { CONTAINER_HEAD, RAIL } from "../shapes/geometry";
import { worst } from "../model/problems";
import type { CanvasNode, ContainerData } from "../shapes/types";
import { BranchHead, ChoiceFoot, ChoiceHead, RemoveBranch, useTaken } from "./ChoiceNodes";
import { HeadPort } from "./HeadPort";
import { InPlace } from "./InPlace";
import { LiveTogether, LoopAt } from "./live";
import { LoopHead, MapHead, MapRule, useFields } from "./LoopHeads";
import { Changed, Ports, Problems, portTitle } from "./parts";
import { strings } from "../../strings";

const ICONS: Record<ContainerData["container"], LucideIcon> = {
  loop: Repeat,
  map: Layers,
  parallel: Split,
  sequence: List,
  choose: Signpost,
  case: CornerDownRight,
  otherwise: CornerDownRight,
};
const TEACH = {
  loop: strings.canvas.dropTheStepsToRepeat,
  map: strings.canvas.dropTheStepsForEachItem,
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
  const set = useFields(box);
  const toggle = () =>
    editor.editGraph(box.closed ? strings.canvas.openAContainer : strings.canvas.closeAContainer, (graph) =>
      setClosed(graph, editor.state.view.canvas, box.id, !box.closed),
    );
  const enter = () => editor.open({ kind: "walk", walk: box.walk, inside: box.id });
  const kinds = [box.container, box.closed ? "closed" : "", box.muted, worst(box.problems), useTaken(box)];
  return (
    <div className={`wg-container ${kinds.filter(Boolean).join(" ")}`}>
      {box.head && !box.closed && <HeadPort box={box} />}
      <LoopMarks walk={box.walk} loop={isLoop(box.container) ? box.name : ""} closed={box.closed} nodes={box.nodes} />
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
        <Head box={box} />
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
      {(isLoop(box.container) || box.when || box.closed) && (
        <div className="wg-rail" style={{ height: RAIL }}>
          {box.index && <IndexPort port={box.index} />}
          {box.container === "map" && <MapRule box={box} />}
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
          {isLoop(box.container) && <LoopAt walk={box.walk} loop={box.name} map={box.container === "map"} />}
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
      {box.container === "choose" && !box.closed && <ChoiceFoot box={box} />}
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

/** Its effect, in words that are edited where they stand. */
function Head({ box }: { box: ContainerData }) {
  switch (box.container) {
    case "loop":
      return <LoopHead box={box} />;
    case "map":
      return <MapHead box={box} />;
    case "choose":
      return <ChoiceHead box={box} />;
    case "case":
    case "otherwise":
      return <BranchHead box={box} />;
    default:
      return <strong>{box.container === "parallel" ? strings.canvas.atTheSameTime : strings.canvas.inOrder}</strong>;
  }
}

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
