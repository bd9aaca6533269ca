// Above the run button: that the next run pauses somewhere.
import { X } from "lucide-react";
import { useEditor } from "../store/react";
import { IconButton } from "../ui/kit";
import { debuggingOf, useDebugging } from "./model/state";
import { strings } from "../strings";

export function UpTo() {
  const editor = useEditor();
  const spot = useDebugging((state) => state.upTo);
  if (!spot) return null;
  return (
    <div className="wg-up-to" role="status">
      <i className="wg-break-sign" aria-hidden />
      <span>
        {strings.debug.theNextRunContinues} <code>{spot.use}</code> {strings.debug.inAndPausesThere(spot.walk)}
      </span>
      <IconButton
        label={strings.debug.dontPauseTheNextRun}
        onClick={() => debuggingOf(editor).setState({ upTo: null })}
      >
        <X size={13} />
      </IconButton>
    </div>
  );
}
