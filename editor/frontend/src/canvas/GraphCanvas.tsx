// The graph as a canvas: tabs above, the open canvas below.
import { ReactFlowProvider } from "@xyflow/react";
import { useEditorState } from "../store/react";
import { Board } from "./Board";
import { Strip } from "./Strip";
import { strings } from "../strings";

export function GraphCanvas() {
  const canvas = useEditorState((state) => state.view.canvas);
  const name = useEditorState((state) => state.name);
  const key = canvas.kind === "components" ? `${name}:components` : `${name}:${canvas.walk}/${canvas.inside ?? ""}`;
  return (
    <section className="wg-canvas" aria-label={strings.canvas.graph}>
      <Strip />
      <ReactFlowProvider key={key}>
        <Board canvas={canvas} viewKey={key} />
      </ReactFlowProvider>
    </section>
  );
}
