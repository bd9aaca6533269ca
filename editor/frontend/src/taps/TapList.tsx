// All taps that are armed in the deployment, over the canvas; nothing while there are none.
import { Crosshair, Trash2 } from "lucide-react";
import { useState } from "react";
import { useEditor } from "../store/react";
import type { TapShown } from "../store/watch";
import { Button, IconButton } from "../ui/kit";
import { plural } from "../ui/words";
import { removeTap, removeTaps, showTap } from "./actions";
import { openCard } from "./cards";
import { tapName } from "./TapCard";
import { strings } from "../strings";

export function TapList({ taps }: { taps: readonly TapShown[] }) {
  const editor = useEditor();
  const [open, setOpen] = useState(false);
  if (taps.length === 0) return null;
  const show = (tap: TapShown) => {
    showTap(editor, tap);
    openCard(tap.id);
  };
  return (
    <section className="wg-tap-list" aria-label={strings.taps.taps}>
      <button type="button" className="wg-button" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Crosshair size={14} aria-hidden /> {plural(taps.length, "tap")}
      </button>
      {open && (
        <div className="sheet">
          <ul>
            {taps.map((tap) => (
              <li key={tap.id}>
                <button
                  type="button"
                  className="place"
                  title={strings.taps.showItOnItsCanvas}
                  onClick={() => show(tap)}
                >
                  <strong>{tapName(tap)}</strong>
                  <span>
                    {tap.walk}
                    {tap.run && strings.taps.runWithRun(tap.run.slice(0, 8))}
                    {tap.inside && " · stepped"}
                  </span>
                </button>
                <IconButton
                  label={strings.taps.removeTheTapWithTap(tapName(tap))}
                  onClick={() => void removeTap(editor, tap.id)}
                >
                  <Trash2 size={13} />
                </IconButton>
              </li>
            ))}
          </ul>
          <Button kind="danger" onClick={() => void removeTaps(editor)}>
            {strings.taps.removeAll}
          </Button>
        </div>
      )}
    </section>
  );
}
