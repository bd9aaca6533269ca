// Notes and frames: words and colour, for readers only.
import { putFrame, putNote, removeFrame, removeNote, canvasLayout } from "../../../document/edits/parts/layout";
import type { Canvas } from "../../../store/types";
import { useEditorState } from "../../../store/react";
import { Removal } from "../../common/bits";
import { useApply } from "../../common/apply";
import { TextField } from "../fields/fields";
import { strings } from "../../../strings";

interface MarkProps {
  kind: "note" | "frame";
  id: string;
  canvas: Canvas;
}

const COLORS: readonly [value: string, name: string][] = [
  ["", "plain"],
  ["#e5b73b", "yellow"],
  ["#5aa469", "green"],
  ["#4a86d8", "blue"],
  ["#a673d1", "violet"],
  ["#d9636c", "red"],
];

export function MarkForm({ kind, id, canvas }: MarkProps) {
  const { apply, attempt, editor } = useApply();
  const graph = useEditorState((state) => state.documents.graph);
  const layout = canvasLayout(graph, canvas);
  const note = kind === "note" ? layout.notes?.find((known) => known.id === id) : undefined;
  const frame = kind === "frame" ? layout.frames?.find((known) => known.id === id) : undefined;
  const mark = note ?? frame;
  if (!mark) return <p className="wg-quiet">{strings.inspector.itNoLongerExists}</p>;
  const write = (text: string) =>
    apply(
      strings.inspector.write(kind),
      (graph) =>
        note ? putNote(graph, canvas, { ...note, text }) : putFrame(graph, canvas, { ...frame!, title: text }),
      `${kind}/${id}`,
    );
  const paint = (color: string) =>
    attempt(strings.inspector.colour(kind), (graph) => {
      const { color: _, ...rest } = mark;
      const painted = color ? { ...rest, color } : rest;
      return note
        ? putNote(graph, canvas, painted as typeof note)
        : putFrame(graph, canvas, painted as NonNullable<typeof frame>);
    });
  const remove = () => {
    const done = attempt(strings.inspector.removeWithKind(kind), (graph) =>
      kind === "note" ? removeNote(graph, canvas, id) : removeFrame(graph, canvas, id),
    );
    if (done) editor.select();
  };
  return (
    <>
      <TextField
        label={kind === "note" ? strings.inspector.text : strings.inspector.title}
        value={note ? note.text : frame!.title}
        lines={kind === "note" ? 6 : 1}
        live
        onEnter={write}
      />
      <div className="wg-swatches" role="radiogroup" aria-label={strings.inspector.colour2}>
        {COLORS.map(([value, name]) => (
          <button
            key={name}
            type="button"
            role="radio"
            aria-checked={(mark.color ?? "") === value}
            aria-label={name}
            title={name}
            style={{ background: value || "var(--bg)" }}
            onClick={() => paint(value)}
          />
        ))}
      </div>
      <Removal onRemove={remove}>{strings.inspector.removeWithKind(kind)}</Removal>
    </>
  );
}
