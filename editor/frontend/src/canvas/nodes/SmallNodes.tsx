// Forks, what stands at a Walk's border, notes and frames.
import { NodeResizer, type NodeProps } from "@xyflow/react";
import { GitFork, LogIn, LogOut, Unplug, Waves } from "lucide-react";
import { memo, useState } from "react";
import { useEditor } from "../../store/react";
import { putFrame, putNote, canvasLayout } from "../../document/edits/parts/layout";
import { isFresh } from "../gestures/fresh";
import { boundaryTop } from "../shapes/geometry";
import { worst } from "../model/problems";
import type { BoundaryData, CanvasNode, ForkData, FrameData, NoteData } from "../shapes/types";
import { Ports, Problems, When } from "./parts";
import { isModified } from "../../ui/keys";
import { strings } from "../../strings";

export const ForkNode = memo(function ForkNode({ data }: NodeProps<CanvasNode>) {
  const fork = data as ForkData;
  return (
    <div
      className={`wg-fork ${fork.muted} ${worst(fork.problems)}`}
      title={strings.canvas.copiesTheStateIntoEach(fork.fork, fork.into)}
    >
      <header>
        <b className="wg-order">{fork.badge}</b>
        <GitFork size={13} aria-hidden />
        <strong>{fork.fork}</strong>→<strong>{fork.into}</strong>
        <Problems problems={fork.problems} />
      </header>
      {fork.when && <When when={fork.when} />}
    </div>
  );
});

const ICONS = { in: LogIn, out: LogOut, before: LogIn, after: LogOut, stream: Waves, sink: Waves, missing: Unplug };

export const BoundaryNode = memo(function BoundaryNode({ data }: NodeProps<CanvasNode>) {
  const border = data as BoundaryData;
  const Icon = ICONS[border.role];
  return (
    <div className={`wg-boundary ${border.role} ${worst(border.problems)}`}>
      <header>
        <Icon size={13} aria-hidden />
        <strong>{border.title}</strong>
        <Problems problems={border.problems} />
      </header>
      {border.subtitle && <div className="wg-component">{border.subtitle}</div>}
      <div className="wg-rows">
        <Ports inputs={border.inputs} outputs={border.outputs} top={boundaryTop(border)} />
      </div>
      <div className="wg-far" aria-hidden>
        {border.title}
      </div>
    </div>
  );
});

export const NoteNode = memo(function NoteNode({ data, selected }: NodeProps<CanvasNode>) {
  const note = data as NoteData;
  const editor = useEditor();
  const [writing, setWriting] = useState(() => isFresh(`note:${note.note}`));
  const change = (text: string) => {
    setWriting(false);
    if (text === note.text) return;
    editor.editGraph(strings.canvas.writeANote, (graph) => {
      const old = canvasLayout(graph, editor.state.view.canvas).notes?.find((one) => one.id === note.note);
      return old ? putNote(graph, editor.state.view.canvas, { ...old, text }) : graph;
    });
  };
  return (
    <div
      className="wg-note"
      style={note.color ? { background: note.color } : undefined}
      onDoubleClick={() => setWriting(true)}
    >
      <NodeResizer isVisible={selected ?? false} minWidth={96} minHeight={40} />
      {writing ? (
        <textarea
          className="nodrag nowheel"
          aria-label={strings.canvas.note}
          autoFocus
          defaultValue={note.text}
          placeholder={strings.canvas.sayWhatThisPart}
          onBlur={(event) => change(event.target.value)}
          onKeyDown={(event) => {
            if (!isModified(event)) event.stopPropagation();
            if (event.key === "Escape" || (event.key === "Enter" && isModified(event))) event.currentTarget.blur();
          }}
        />
      ) : (
        <p>{note.text || strings.canvas.doubleClickToWrite}</p>
      )}
    </div>
  );
});

export const FrameNode = memo(function FrameNode({ data, selected }: NodeProps<CanvasNode>) {
  const frame = data as FrameData;
  const editor = useEditor();
  const rename = (title: string) =>
    editor.editGraph(strings.canvas.nameAFrame, (graph) => {
      const old = canvasLayout(graph, editor.state.view.canvas).frames?.find((one) => one.id === frame.frame);
      return old && old.title !== title ? putFrame(graph, editor.state.view.canvas, { ...old, title }) : graph;
    });
  return (
    <div className="wg-frame" style={frame.color ? ({ "--tint": frame.color } as React.CSSProperties) : undefined}>
      <NodeResizer isVisible={selected ?? false} minWidth={120} minHeight={80} />
      <input
        className="nodrag"
        aria-label={strings.canvas.framesTitle}
        key={frame.title}
        defaultValue={frame.title}
        placeholder={strings.canvas.untitledFrame}
        onBlur={(event) => rename(event.target.value)}
        onKeyDown={(event) => {
          if (!isModified(event)) event.stopPropagation();
          if (event.key === "Enter" || event.key === "Escape") event.currentTarget.blur();
        }}
      />
    </div>
  );
});
