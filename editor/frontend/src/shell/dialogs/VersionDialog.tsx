// Keep the draft as it is now, with a note to find it by.
import { useState } from "react";
import { useEditor } from "../../store/react";
import { Button, Dialog, Field, Input } from "../../ui/kit";
import { keepVersion } from "../../versions/loading";
import { strings } from "../../strings";

/** Longest note; the service has the same bound. */
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
      editor.say(strings.shell.savedAsAVersion(note ? `: ${note}` : ""));
      onClose();
    } catch (failure) {
      setError(strings.shell.theVersionWasNotSaved(failure instanceof Error ? failure.message : String(failure)));
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={strings.shell.saveAVersion2}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{strings.shell.cancel}</Button>
          <Button kind="primary" type="submit" form="wg-version" disabled={busy}>
            {strings.shell.saveVersion}
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
        <Field label={strings.shell.note} hint={strings.shell.describeThisVersion} error={error}>
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
