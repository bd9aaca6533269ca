// Lines under the bar that want an answer: another tab edits, unsaved changes were found, the service is away.
import { History, Lock } from "lucide-react";
import { useState } from "react";
import { useStore } from "zustand";
import { useEditorState } from "../../store/react";
import { Button, Dialog } from "../../ui/kit";
import { showTime } from "../../ui/words";
import { DiffList } from "../../versions/DiffList";
import { useSession } from "../../session/react";
import { strings } from "../../strings";

export function Banners() {
  const saving = useEditorState((state) => state.saving);
  const session = useSession();
  const copy = useStore(session.found, (state) => state.copy);
  return (
    <>
      {saving.state === "readonly" && (
        <div className="wg-banner" role="status">
          <Lock size={15} aria-hidden />
          <span>{strings.shell.thisTabIsReadOnly(saving.reason)}</span>
          <Button onClick={() => void session.tabs.take()}>{strings.shell.editHere}</Button>
        </div>
      )}
      {copy && <Found at={copy.at} />}
    </>
  );
}

function Found({ at }: { at: number }) {
  const session = useSession();
  const [comparing, compare] = useState(false);
  return (
    <div className="wg-banner" role="status">
      <History size={15} aria-hidden />
      <span>{strings.shell.changesFromWereNotSaved(showTime(at / 1000))}</span>
      <Button onClick={() => compare(true)}>{strings.shell.compare}</Button>
      <Button kind="primary" onClick={() => session.restoreFound()}>
        {strings.shell.restoreThem}
      </Button>
      <Button kind="quiet" onClick={() => session.forgetFound()}>
        {strings.shell.discard}
      </Button>
      {comparing && <Compared onClose={() => compare(false)} />}
    </div>
  );
}

function Compared({ onClose }: { onClose: () => void }) {
  const session = useSession();
  const stored = useEditorState((state) => state.documents.graph);
  const found = useStore(session.found, (state) => state.copy?.documents.graph);
  if (!found) return null;
  return (
    <Dialog title={strings.shell.whatRestoringWouldChange} onClose={onClose}>
      <DiffList before={stored} after={found} />
    </Dialog>
  );
}
