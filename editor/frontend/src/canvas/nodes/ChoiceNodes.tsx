// The heads of a choice and of its branches, and merges behind it.
import { Handle, Position, type NodeProps } from "@xyflow/react";
import { Merge, Plus, X } from "lucide-react";
import { memo } from "react";
import { addCase, addOtherwise, removeBranch, renameCase, renameMerge, setHead } from "../../document/edits";
import type { WithId } from "../../document/edits/items";
import type { GraphDocument } from "../../document/types";
import { useEditor } from "../../store/react";
import { useBranchState, type BranchState } from "../../telemetry/activity";
import { attempt } from "../gestures/attempt";
import { worst } from "../model/problems";
import { CHOICE_FOOT } from "../shapes/geometry";
import type { CanvasNode, ContainerData, MergeData } from "../shapes/types";
import { InPlace } from "./InPlace";
import { Problems } from "./parts";
import { strings } from "../../strings";

/** Where a wire with the value ends, and the value as text. */
export function ChoiceHead({ box }: { box: ContainerData }) {
  const editor = useEditor();
  const { value } = box.head!;
  const set = (text: string) =>
    attempt(editor, strings.canvas.setTheValueOfAChoice, (graph) =>
      setHead(graph, box.walk, box.id, text || null, editor.state.catalogue),
    );
  return (
    <>
      <b className="wg-order">{box.badge}</b>
      <strong>{strings.canvas.chooseBy}</strong>
      <InPlace
        className="code"
        label={strings.canvas.valueThatTheChoiceGoesBy}
        value={value}
        placeholder={strings.canvas.drawAWireHere}
        onChange={set}
      />
    </>
  );
}

export function ChoiceFoot({ box }: { box: ContainerData }) {
  const editor = useEditor();
  const add = (label: string, change: (graph: GraphDocument) => WithId) => {
    let made = "";
    const done = attempt(editor, label, (graph) => {
      const answer = change(graph);
      made = answer.id;
      return answer.graph;
    });
    if (done) editor.select(made);
  };
  const { port } = box.head!;
  return (
    <footer className="wg-choice-foot nodrag" style={{ height: CHOICE_FOOT }}>
      <button
        type="button"
        aria-label={strings.canvas.addACase}
        onClick={() =>
          add(strings.canvas.addACase, (graph) => addCase(graph, box.walk, box.id, undefined, port.type || null))
        }
      >
        <Plus size={12} aria-hidden /> {strings.canvas.addCase}
      </button>
      {!box.otherwise && (
        <button
          type="button"
          aria-label={strings.canvas.addABranchForOtherValues}
          onClick={() =>
            add(strings.canvas.addABranchForOtherValues, (graph) => addOtherwise(graph, box.walk, box.id))
          }
        >
          <Plus size={12} aria-hidden /> {strings.canvas.addOtherwise}
        </button>
      )}
    </footer>
  );
}

export function BranchHead({ box }: { box: ContainerData }) {
  const editor = useEditor();
  if (box.container === "otherwise")
    return (
      <>
        <strong>{strings.canvas.otherwise}</strong>
        <small>{strings.canvas.anyOtherValue}</small>
      </>
    );
  const rename = (name: string) => {
    let made = "";
    const done = attempt(editor, strings.canvas.nameACase, (graph) => {
      const answer = renameCase(graph, box.walk, box.id, name);
      made = answer.id;
      return answer.graph;
    });
    if (done && editor.state.view.selection.includes(box.id)) editor.select(made);
    return done;
  };
  return (
    <>
      <small>{strings.canvas.case}</small>
      <InPlace className="name" label={strings.canvas.casesValue} value={box.name} onChange={rename} />
    </>
  );
}

export function RemoveBranch({ box }: { box: ContainerData }) {
  const editor = useEditor();
  const label =
    box.container === "otherwise" ? strings.canvas.removeOtherwise : strings.canvas.removeTheCase(box.name);
  const remove = () => {
    if (attempt(editor, strings.canvas.removeABranch, (graph) => removeBranch(graph, box.walk, box.id)))
      editor.select(box.branch!.choice);
  };
  return (
    <button type="button" className="nodrag wg-mini" aria-label={label} title={label} onClick={remove}>
      <X size={13} />
    </button>
  );
}

/** The latest runs' activity in a container, if it is a branch. */
export function useTaken({ branch }: ContainerData): BranchState {
  const { own, others } = branch ?? NO_BRANCH;
  return useBranchState(own, others);
}

const NO_BRANCH = { own: [] as string[], others: [] as string[] };

export const MergeNode = memo(function MergeNode({ data }: NodeProps<CanvasNode>) {
  const merge = data as MergeData;
  const editor = useEditor();
  const rename = (name: string) => {
    const done = attempt(editor, strings.canvas.renameAMerge, (graph) =>
      renameMerge(graph, merge.walk, merge.name, name),
    );
    if (done && editor.state.view.selection.includes(`merge:${merge.name}`)) editor.select(`merge:${name}`);
    return done;
  };
  const [input] = merge.inputs;
  const [output] = merge.outputs;
  return (
    <div
      className={`wg-merge ${worst(merge.problems)}`}
      style={{ "--tint": merge.color } as React.CSSProperties}
      title={strings.canvas.mergeOneOf(merge.sources.join(", "))}
    >
      {input && (
        <span className={`wg-knob ${input.wired ? "wired" : ""}`}>
          <Handle
            type="target"
            position={Position.Left}
            id={input.ref}
            aria-label={`${strings.canvas.input} ${merge.name}, ${input.type || strings.canvas.anyType}`}
          />
        </span>
      )}
      <Merge size={14} aria-hidden />
      <InPlace className="name" label={strings.canvas.mergesName} value={merge.name} onChange={rename} />
      <Problems problems={merge.problems} />
      {output && (
        <span className={`wg-knob out ${output.wired ? "wired" : ""}`}>
          <Handle
            type="source"
            position={Position.Right}
            id={output.ref}
            aria-label={`${strings.canvas.output} ${merge.name}, ${output.type || strings.canvas.anyType}`}
          />
        </span>
      )}
      <div className="wg-far" aria-hidden>
        {merge.name}
      </div>
    </div>
  );
});
