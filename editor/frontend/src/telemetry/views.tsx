// Live figures where others place them: what a node feeds out, below it; and how live what the canvas shows is.
import { Pause, Pin, Play } from "lucide-react";
import { Button, IconButton } from "../ui/kit";
import { focusRun, pin, setPaused, unpin, useActivity, useAnyRunning, useFocus } from "./activity";
import { useConnection } from "../api/socket";
import { strings } from "../strings";

/** The newest picture, or the end of the text, that left the run at this node; nothing where there is none. */
export function NodePreview({ node }: { node: string }) {
  const activity = useActivity(node);
  if (!activity?.preview && !activity?.words) return null;
  const { preview, words, stale } = activity;
  return (
    <div className={`wg-preview nodrag ${stale ? "stale" : ""}`}>
      {preview && (
        <>
          <img src={preview.url} alt={strings.shell.output(node)} draggable={false} />
          <IconButton
            label={preview.pinned ? strings.shell.letTheNextRunReplace : strings.shell.keepItThroughLaterRuns}
            aria-pressed={preview.pinned}
            onClick={() => (preview.pinned ? unpin(node) : pin(node))}
          >
            <Pin size={12} />
          </IconButton>
        </>
      )}
      {words && <p>{words}</p>}
    </div>
  );
}

/** Over the canvas: that figures are held, or are of one run; while something runs, the way to hold them. */
export function LiveBar() {
  const { paused } = useConnection();
  const focused = useFocus();
  const running = useAnyRunning();
  if (paused) {
    return (
      <div className="wg-livebar" role="status">
        {strings.shell.liveFiguresArePaused}
        <Button kind="quiet" onClick={() => setPaused(false)}>
          <Play size={13} aria-hidden /> {strings.shell.resumeFigures}
        </Button>
      </div>
    );
  }
  if (focused !== null) {
    return (
      <div className="wg-livebar" role="status">
        {strings.shell.figuresOfOneRun} <code>{focused.slice(0, 8)}</code>
        <Button kind="quiet" onClick={() => focusRun(null)}>
          {strings.shell.backToLive}
        </Button>
      </div>
    );
  }
  if (!running) return null;
  return (
    <div className="wg-livebar">
      <i aria-hidden /> {strings.shell.live}
      <IconButton label={strings.shell.pauseTheLiveFigures} onClick={() => setPaused(true)}>
        <Pause size={13} />
      </IconButton>
    </div>
  );
}
