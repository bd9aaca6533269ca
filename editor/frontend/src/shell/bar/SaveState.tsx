// How the draft stands, in words.
import { Check, CircleAlert, CloudOff, Lock, PenLine, RefreshCw } from "lucide-react";
import { useEditorState } from "../../store/react";
import type { Saving } from "../../store/types";
import { Button } from "../../ui/kit";
import { strings } from "../../strings";

const ICONS = {
  saved: Check,
  unsaved: PenLine,
  saving: RefreshCw,
  offline: CloudOff,
  conflict: CircleAlert,
  readonly: Lock,
};

export function SaveState({ onConflict }: { onConflict: () => void }) {
  const saving = useEditorState((state) => state.saving);
  const Icon = ICONS[saving.state];
  const words = wordsOf(saving);
  if (saving.state === "conflict")
    return (
      <Button className="wg-saving conflict" onClick={onConflict}>
        <Icon size={14} aria-hidden /> {words}
      </Button>
    );
  return (
    <span className={`wg-saving ${saving.state}`} role="status" title={titleOf(saving) ?? words}>
      <Icon size={14} aria-hidden />
      <span>{words}</span>
    </span>
  );
}

function wordsOf(saving: Saving): string {
  if (saving.state === "offline") return saving.message;
  const words = {
    saved: strings.shell.saved,
    unsaved: strings.shell.saving,
    saving: strings.shell.saving,
    conflict: strings.shell.changedElsewhereChoose,
    readonly: strings.shell.readOnly,
  };
  return words[saving.state];
}

function titleOf(saving: Saving): string | null {
  if (saving.state === "saved" && saving.at)
    return strings.shell.savedWithValue(new Date(saving.at).toLocaleTimeString());
  return saving.state === "readonly" ? saving.reason : null;
}
