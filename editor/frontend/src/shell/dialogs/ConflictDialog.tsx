// Somebody else saved another version meanwhile: see the difference, choose what stays.
import { useState } from "react";
import { ApiError } from "../../api/client";
import { useEditor, useEditorState } from "../../store/react";
import { same } from "../../store/same";
import type { Choice } from "../../session/persistence";
import { Button, Dialog } from "../../ui/kit";
import { DiffList } from "../../versions/DiffList";
import { useSession } from "../../session/react";

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
      if (copy) editor.say(`Yours is stored as “${copy}”; this is the other version.`);
      if (choice === "theirs") editor.say("This is the other version. Undo brings yours back.");
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
        Save mine as a copy
      </Button>
      <Button disabled={busy} onClick={() => void choose("theirs")}>
        Take theirs
      </Button>
      <Button kind="primary" disabled={busy} onClick={() => void choose("mine")}>
        Keep mine
      </Button>
    </>
  );
  return (
    <Dialog title={`“${name}” was also changed elsewhere`} onClose={onClose} footer={footer}>
      <p className="wg-lead">
        Nothing is lost: both versions are kept until you choose. This is what yours changes in theirs.
      </p>
      <DiffList before={theirs.graph} after={mine.graph} />
      {!same(theirs.placement, mine.placement) && <p className="wg-lead">The placements differ too.</p>}
    </Dialog>
  );
}
