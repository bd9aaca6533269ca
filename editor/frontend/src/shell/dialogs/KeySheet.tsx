// All keys in a dialog.
import { Dialog } from "../../ui/kit";
import { KeyList } from "../frame/KeyList";
import { strings } from "../../strings";

export function KeySheet({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title={strings.shell.keyboard2} onClose={onClose}>
      <KeyList />
    </Dialog>
  );
}
