// Somebody else saved another version meanwhile: see the difference, choose what stays.
import { useState } from "react";
import { ApiError } from "../../api/client";
import { useEditor, useEditorState } from "../../store/react";
import { same } from "../../store/same";
import type { Choice } from "../../session/persistence";
import { Button, Dialog } from "../../ui/kit";
import { DiffList } from "../../versions/DiffList";
import { useSession } from "../../session/react";
import { strings } from "../../strings";

export function ConflictDialog({ onClose }: { onClose: () => void }) {
  const editor = useEditor();
  const session = useSession();
  const saving = useEditorState((state) => state.saving);
  const mine = useEditorState((state) => state.documents);
  const name = useEditorState((state) => state.name);
  const [busy, setBusy] = useState(false);
  if (saving.state !== "conflict") return null;
  const { theirs } = saving;
  const choose = async (choice: Choice) => {
    setBusy(true);
    try {
      const copy = await session.persistence.resolve(choice);
      if (copy) editor.say(strings.shell.yoursIsStoredAsThis(copy));
      if (choice === "theirs") editor.say(strings.shell.thisIsTheOtherVersion);
      onClose();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      editor.say(error.message, "error");
    } finally {
      setBusy(false);
    }
  };
  const footer = (
    <>
      <Button disabled={busy} onClick={() => void choose("copy")}>
        {strings.shell.saveMineAsACopy}
      </Button>
      <Button disabled={busy} onClick={() => void choose("theirs")}>
        {strings.shell.takeTheirs}
      </Button>
      <Button kind="primary" disabled={busy} onClick={() => void choose("mine")}>
        {strings.shell.keepMine}
      </Button>
    </>
  );
  return (
    <Dialog title={strings.shell.wasAlsoChangedElsewhere(name)} onClose={onClose} footer={footer}>
      <p className="wg-lead">{strings.shell.nothingIsLostBothVersions}</p>
      <DiffList before={theirs.graph} after={mine.graph} />
      {!same(theirs.placement, mine.placement) && <p className="wg-lead">{strings.shell.thePlacementsDifferToo}</p>}
    </Dialog>
  );
}
