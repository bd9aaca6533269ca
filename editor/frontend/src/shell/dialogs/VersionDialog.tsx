// Keep the draft as it is now, with a note to find it by.
import { useState } from "react";
import { useEditor } from "../../store/react";
import { Button, Dialog, Field, Input } from "../../ui/kit";
import { keepVersion } from "../../versions/loading";

/** Of the note; the service's own bound. */
const LONGEST = 200;

export function VersionDialog({ onClose }: { onClose: () => void }) {
  const editor = useEditor();
  const [note, setNote] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const keep = async () => {
    setBusy(true);
    try {
      await keepVersion(editor, note.trim());
      editor.say(`Saved as a version${note ? `: ${note}` : ""}.`);
      onClose();
    } catch (failure) {
      setError(`The version was not saved: ${failure instanceof Error ? failure.message : String(failure)}`);
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
