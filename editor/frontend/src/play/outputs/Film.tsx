// Pictures of one output that follow each other: live the newest, then the whole, over and over.
import { Clapperboard, Download, Pause, Play } from "lucide-react";
import { useEffect, useMemo, useState, type CSSProperties } from "react";
import { toBase64, toBytes } from "../../api/base64";
import { IconButton } from "../../ui/kit";
import { endMs, frameMs } from "../model/pace";
import { labelOf } from "../model/form";
import { dataUrl } from "../files/media";
import { movingPng } from "../files/png";
import { Range } from "../../ui/Range";
import type { Made, OutputShown } from "../model/types";
import { UseButton, type Use } from "./UseButton";
import { strings } from "../../strings";

/** Pixels; what is narrower shows them, as drawings of few pixels are meant to. */
const SMALL = 100;

interface Props {
  output: OutputShown;
  /** No more will come. */
  over: boolean;
  onSave: (output: OutputShown, made: Made) => void;
  /** The next actions for one of its pictures. */
  uses: readonly Use[];
}

export function Film({ output, over, onSave, uses }: Props) {
  const { made, left } = output;
  const last = made.length - 1;
  const [playing, setPlaying] = useState(() => !matchMedia("(prefers-reduced-motion: reduce)").matches);
  // A film that was complete when it was opened starts at its beginning; a film watched live shows its end first.
  const [chosen, setChosen] = useState<number | null>(over && playing ? 0 : null);
  const [size, setSize] = useState<{ small: boolean; ratio: number } | null>(null);
  const pace = useMemo(() => frameMs(made), [made]);
  const moving = over && playing && last > 0;
  const at = Math.min(chosen ?? last, last);
  useEffect(() => {
    if (!moving) return;
    const timer = setTimeout(() => setChosen(at >= last ? 0 : at + 1), at >= last ? endMs(pace) : pace);
    return () => clearTimeout(timer);
  }, [moving, at, last, pace]);
  const shown = made[at];
  if (!shown) return null;
  const toggle = () => {
    if (!playing && at >= last) setChosen(0);
    setPlaying(!playing);
  };
  const save = () => {
    const pictures = made.map(({ value }) => toBytes(value.data ?? ""));
    const bytes = movingPng(pictures, (index) => (index === last ? endMs(pace) : pace));
    onSave(output, bytes ? { ...shown, value: { ...shown.value, mime: "image/png", data: toBase64(bytes) } } : shown);
  };
  return (
    <section className="wg-play-output film" aria-label={labelOf(output.name)}>
      <header>
        <h3>{labelOf(output.name)}</h3>
        <span className="tag">
          {over ? strings.play.pictures(made.length + left) : strings.play.livePicture(made.length + left)}
        </span>
        {left > 0 && <span className="tag">{strings.play.inTheMiddleOmitted(left)}</span>}
        {over && <UseButton name={strings.play.picture(at + 1)} made={shown} uses={uses} />}
        {over && last > 0 && (
          <IconButton label={strings.play.downloadTheFilm} onClick={save}>
            <Clapperboard size={14} />
          </IconButton>
        )}
        <IconButton label={strings.play.downloadPicture(at + 1)} onClick={() => onSave(output, shown)}>
          <Download size={14} />
        </IconButton>
      </header>
      <div
        className={`picture filled ${size?.small ? "small" : ""}`}
        style={{ "--ratio": size?.ratio ?? 1 } as CSSProperties}
      >
        <img
          src={dataUrl(shown.value)}
          alt={strings.play.pictureWithCount(labelOf(output.name), at + 1, made.length)}
          onLoad={({ currentTarget: { naturalWidth: width, naturalHeight: height } }) =>
            setSize((before) => {
              const ratio = width / (height || 1);
              return before?.ratio === ratio ? before : { small: Math.min(width, height) < SMALL, ratio };
            })
          }
        />
      </div>
      {last > 0 && (
        <div className={`reel ${over ? "" : "coming"}`}>
          {over && (
            <IconButton label={playing ? strings.play.pause : strings.play.play} onClick={toggle}>
              {playing ? <Pause size={14} /> : <Play size={14} />}
            </IconButton>
          )}
          <span>{strings.play.of(at + 1, made.length)}</span>
          <Range
            aria-label={strings.play.pictureShown}
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
