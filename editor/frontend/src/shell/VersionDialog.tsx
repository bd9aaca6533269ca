// Keep the draft as it is now, with a note to find it by.
import { useState } from "react";
import { ApiError, call } from "../api/client";
import { flush } from "../store/attach";
import { useEditor, useEditorState } from "../store/react";
import { Button, Dialog, Field, Input } from "../ui/kit";

/** Of the note; the service's own bound. */
const LONGEST = 200;

export function VersionDialog({ onClose }: { onClose: () => void }) {
  const editor = useEditor();
  const name = useEditorState((state) => state.name);
  const [note, setNote] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const keep = async () => {
    setBusy(true);
    try {
      await flush(editor);
      await call(`/api/v1/graphs/${encodeURIComponent(name)}/versions`, { method: "POST", body: { note } });
      editor.say(`Saved as a version${note ? `: ${note}` : ""}.`);
      onClose();
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      const unsaved = failure.status === 404;
      setError(unsaved ? "Change something first: the service has no draft of this graph yet." : failure.message);
      setBusy(false);
    }
  };
  return (
    <Dialog
      title="Save a version"
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" form="wg-version" disabled={busy}>
            Save version
          </Button>
        </>
      }
    >
      <form
        id="wg-version"
        onSubmit={(event) => {
          event.preventDefault();
          void keep();
        }}
      >
        <Field label="Note" hint="What this version is, so that you find it again. May stay empty." error={error}>
          {(field) => (
            <Input
              {...field}
              autoFocus
              maxLength={LONGEST}
              value={note}
              onChange={(event) => setNote(event.target.value)}
            />
          )}
        </Field>
      </form>
    </Dialog>
  );
}
