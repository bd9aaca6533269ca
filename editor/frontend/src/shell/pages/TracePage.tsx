// The trace as a page of its own: no graph is open, deployments alone are followed.
import { useEffect, useMemo } from "react";
import { DebugDock } from "../../debug/Dock";
import { Deployments } from "../../store/deployments";
import { emptyGraph } from "../../store/documents";
import { Editor } from "../../store/editor";
import { EditorContext } from "../../store/react";
import { TraceView } from "../../trace/TraceView";
import { Toasts } from "../frame/Toasts";

export function TracePage({ deployment }: { deployment: string | undefined }) {
  const editor = useMemo(
    () => new Editor(deployment ?? "", { graph: emptyGraph("none"), placement: null }),
    [deployment],
  );
  useEffect(() => {
    const deployments = new Deployments(editor);
    return () => deployments.dispose();
  }, [editor]);
  return (
    <EditorContext value={editor}>
      <div className="wg-app">
        <main className="wg-main" aria-label="The trace">
          <TraceView alone />
        </main>
        <DebugDock alone />
      </div>
      <Toasts />
    </EditorContext>
  );
}
