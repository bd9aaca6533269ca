// Pictures of one output that follow each other: live the newest, then the whole, over and over.
import { Download, Pause, Play } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import { IconButton } from "../ui/kit";
import { frameMs } from "./pace";
import { labelOf } from "./form";
import { dataUrl } from "./media";
import { Range } from "./Range";
import type { Made, OutputShown } from "./types";

interface Props {
  output: OutputShown;
  /** No more will come. */
  over: boolean;
  onSave: (output: OutputShown, made: Made) => void;
}

export function Film({ output, over, onSave }: Props) {
  const { made, left } = output;
  const last = made.length - 1;
  const [playing, setPlaying] = useState(() => !matchMedia("(prefers-reduced-motion: reduce)").matches);
  const [chosen, setChosen] = useState<number | null>(null);
  const pace = useMemo(() => frameMs(made), [made]);
  const moving = over && playing && last > 0;
  useEffect(() => {
    if (!moving) return;
    // Its end stands for a while before it begins anew.
    const stays = (chosen ?? 0) >= last ? Math.max(pace, 1200) : pace;
    const timer = setTimeout(() => setChosen((at) => ((at ?? 0) >= last ? 0 : (at ?? 0) + 1)), stays);
    return () => clearTimeout(timer);
  }, [moving, chosen, last, pace]);
  const at = Math.min(chosen ?? (moving ? 0 : last), last);
  const shown = made[at];
  if (!shown) return null;
  const toggle = () => {
    if (!playing && at >= last) setChosen(0);
    setPlaying(!playing);
  };
  return (
    <section className="wg-play-output film" aria-label={labelOf(output.name)}>
      <header>
        <h3>{labelOf(output.name)}</h3>
        <span className="tag">{over ? `${made.length + left} pictures` : "live"}</span>
        {left > 0 && <span className="tag">{left} in the middle left out</span>}
        <IconButton label={`Download picture ${at + 1}`} onClick={() => onSave(output, shown)}>
          <Download size={14} />
        </IconButton>
      </header>
      <div className="picture small filled">
        <img src={dataUrl(shown.value)} alt={`${labelOf(output.name)}, picture ${at + 1} of ${made.length}`} />
      </div>
      {last > 0 && (
        <div className={`reel ${over ? "" : "coming"}`}>
          {over && (
            <IconButton label={playing ? "Pause" : "Play"} onClick={toggle}>
              {playing ? <Pause size={14} /> : <Play size={14} />}
            </IconButton>
          )}
          <span>
            {at + 1} of {made.length}
          </span>
          <Range
            aria-label="Picture shown"
            min={0}
            max={last}
            value={at}
            onChange={(value) => {
              setPlaying(false);
              setChosen(value);
            }}
          />
        </div>
      )}
    </section>
  );
}
