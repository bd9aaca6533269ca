// Short messages at the bottom, read out by screen readers. They leave by themselves, errors more slowly.
import { CircleAlert, Info, X } from "lucide-react";
import { useEffect } from "react";
import { useEditor, useEditorState } from "../../store/react";
import type { Toast } from "../../store/types";
import { IconButton, Prose } from "../../ui/kit";
import { strings } from "../../strings";

const STAY_MS = { info: 5000, error: 12_000 };

export function Toasts() {
  const toasts = useEditorState((state) => state.toasts);
  return (
    <div className="wg-toasts" role="status" aria-live="polite">
      {toasts.map((toast) => (
        <Shown key={toast.id} toast={toast} />
      ))}
    </div>
  );
}

function Shown({ toast }: { toast: Toast }) {
  const editor = useEditor();
  useEffect(() => {
    const timer = setTimeout(() => editor.hush(toast.id), STAY_MS[toast.kind]);
    return () => clearTimeout(timer);
  }, [editor, toast]);
  return (
    <div className={`wg-toast ${toast.kind}`} role={toast.kind === "error" ? "alert" : undefined}>
      {toast.kind === "error" ? <CircleAlert size={15} aria-hidden /> : <Info size={15} aria-hidden />}
      <span>
        <Prose text={toast.message} />
      </span>
      <IconButton label={strings.shell.dismiss} onClick={() => editor.hush(toast.id)}>
        <X size={14} />
      </IconButton>
    </div>
  );
}
