// The outputs of a run, by kind: pictures, texts, sounds, curves, heat maps.
import { Download, Volume2, VolumeX } from "lucide-react";
import { useEffect, useMemo, useRef, useState, type CSSProperties } from "react";
import { CopyButton } from "../../ui/CopyButton";
import { IconButton } from "../../ui/kit";
import { toBytes } from "../../api/base64";
import { showSeconds } from "../../ui/words";
import { factOf } from "./Facts";
import { FILM } from "../model/pace";
import { FileOutput } from "./FileOutput";
import { Film } from "./Film";
import { labelOf } from "../model/form";
import { dataUrl, wholeSound } from "../files/media";
import { Range } from "../../ui/Range";
import { UseButton, type Use } from "./UseButton";
import { bounds, curve, matrixOf, rowOf, shapeWords, shrunk, tensorOf, type Tensor } from "../model/numbers";
import type { Made, OutputShown } from "../model/types";
import { concatenated, peaks, readWav } from "../files/wav";
import { strings } from "../../strings";

interface OutputProps {
  output: OutputShown;
  /** No more will come. */
  over: boolean;
  onSave: (output: OutputShown, made: Made) => void;
  /** The next actions for a picture. */
  uses: readonly Use[];
}

export function OutputView(props: OutputProps) {
  const kind = props.output.made[0]?.value.type;
  if (props.output.text) return <TextOutput {...props} />;
  if (kind === "image" && props.output.name === FILM) return <Film {...props} />;
  if (kind === "image") return <Pictures {...props} />;
  if (kind === "audio") return <SoundOutput {...props} />;
  if (kind === "video") return <VideoOutput {...props} />;
  if (kind === "bytes") return <FileOutput {...props} />;
  return <NumbersOutput {...props} />;
}

// ── text ────────────────────────────────────────────────────────────────────────────────────────

function TextOutput({ output, over }: OutputProps) {
  return (
    <section className="wg-play-output" aria-label={labelOf(output.name)}>
      <header>
        <h3>{labelOf(output.name)}</h3>
        <CopyButton text={output.text} label={strings.play.copy(output.name)} />
      </header>
      <div className={`text ${over ? "" : "coming"}`} aria-live="polite">
        {output.text}
      </div>
    </section>
  );
}

// ── pictures ────────────────────────────────────────────────────────────────────────────────────

/** Previews and the final picture in one frame: the newest fades in over the one before. */
export function PictureFrame({
  previews,
  finals,
  over,
  onSave,
  uses,
}: Omit<OutputProps, "output"> & { previews: OutputShown | null; finals: OutputShown | null }) {
  const all = [...(previews?.made ?? []), ...(finals?.made ?? [])];
  // Of several pictures, each is done before the next one begins; a single one stands last, however late previews are.
  const steps = (finals?.made.length ?? 0) > 1 ? all.toSorted((a, b) => a.at - b.at) : all;
  const [chosen, setChosen] = useState<number | null>(null);
  const at = Math.min(chosen ?? steps.length - 1, steps.length - 1);
  const made = steps[at];
  if (!made) return null;
  const final = finals?.made.includes(made) ?? false;
  const output = final ? finals : (previews ?? finals);
  const step = made.iteration?.length ? strings.play.step((made.iteration.at(-1) ?? 0) + 1) : "";
  return (
    <section className="wg-play-output" aria-label={strings.play.picture2}>
      <header>
        <h3>{labelOf(output?.name ?? "image")}</h3>
        <span className={`tag ${final ? "final" : ""}`}>{final ? "final" : step || "preview"}</span>
        {over && <UseButton name={output?.name ?? "picture"} made={made} uses={uses} />}
        {output && (
          <IconButton label={strings.play.download(output.name)} onClick={() => onSave(output, made)}>
            <Download size={14} />
          </IconButton>
        )}
      </header>
      <Fading made={made} name={output?.name ?? ""} quick={chosen !== null} filled />
      {steps.length > 1 && (
        <label className={`steps ${over ? "" : "coming"}`}>
          <span>{strings.play.of(at + 1, steps.length)}</span>
          <Range aria-label={strings.play.stepShown} min={0} max={steps.length - 1} value={at} onChange={setChosen} />
        </label>
      )}
    </section>
  );
}

function Pictures({ output, over, onSave, uses }: OutputProps) {
  return (
    <section className="wg-play-output" aria-label={labelOf(output.name)}>
      <header>
        <h3>{labelOf(output.name)}</h3>
      </header>
      <div className="grid">
        {output.made.map((made, index) => (
          <figure key={index}>
            <Fading made={made} name={`${output.name} ${index + 1}`} quick />
            <IconButton
              label={strings.play.downloadWithIndex(output.name, index + 1)}
              onClick={() => onSave(output, made)}
            >
              <Download size={14} />
            </IconButton>
            {over && <UseButton name={`${output.name} ${index + 1}`} made={made} uses={uses} />}
          </figure>
        ))}
      </div>
    </section>
  );
}

interface FadingProps {
  made: Made;
  name: string;
  /** Without fading. */
  quick: boolean;
  /** As large as the frame, whatever its pixels: a preview has fewer than what it becomes. */
  filled?: boolean;
}

function Fading({ made, name, quick, filled = false }: FadingProps) {
  const [under, setUnder] = useState<Made | null>(null);
  const [size, setSize] = useState<{ small: boolean; ratio: number } | null>(null);
  const last = useRef(made);
  useEffect(() => {
    if (last.current !== made) setUnder(last.current);
    last.current = made;
  }, [made]);
  const url = useMemo(() => dataUrl(made.value), [made]);
  return (
    <div
      className={`picture ${size?.small ? "small" : ""} ${filled ? "filled" : ""}`}
      style={{ "--ratio": size?.ratio ?? 1 } as CSSProperties}
    >
      {under && !quick && <img className="under" src={dataUrl(under.value)} alt="" aria-hidden />}
      <img
        key={quick ? "still" : url.length + url.slice(-64)}
        className={quick ? "" : "over"}
        src={url}
        alt={name}
        onLoad={({ currentTarget: { naturalWidth: width, naturalHeight: height } }) =>
          setSize({ small: width < 256, ratio: width / (height || 1) })
        }
      />
    </div>
  );
}

// ── sounds ──────────────────────────────────────────────────────────────────────────────────────

const BARS = 160;

function SoundOutput({ output, over, onSave }: OutputProps) {
  const sound = useMemo(() => {
    const pieces = output.made.map((made) => readWav(toBytes(made.value.data ?? "")));
    return concatenated(pieces.filter((piece) => piece !== null));
  }, [output.made]);
  const [at, setAt] = useState(0);
  const whole = useMemo(() => (over ? wholeSound(output.made.map((made) => made.value)) : null), [over, output.made]);
  const url = useMemo(
    () => (whole ? URL.createObjectURL(new Blob([whole.bytes], { type: whole.mime })) : null),
    [whole],
  );
  useEffect(() => () => (url ? URL.revokeObjectURL(url) : undefined), [url]);
  const first = output.made[0];
  return (
    <section className="wg-play-output" aria-label={labelOf(output.name)}>
      <header>
        <h3>{labelOf(output.name)}</h3>
        {sound && <span className="tag">{showSeconds(sound.samples.length / sound.rate)}</span>}
        {over && first && (
          <IconButton label={strings.play.download(output.name)} onClick={() => onSave(output, first)}>
            <Download size={14} />
          </IconButton>
        )}
      </header>
      {sound && <Waveform samples={sound.samples} at={at} />}
      {url ? (
        <audio
          controls
          src={url}
          aria-label={labelOf(output.name)}
          onTimeUpdate={({ currentTarget }) =>
            setAt(currentTarget.duration ? currentTarget.currentTime / currentTarget.duration : 0)
          }
        />
      ) : (
        <p className="wg-play-hint">{strings.play.itPlaysWhile}</p>
      )}
    </section>
  );
}

function Waveform({ samples, at }: { samples: Float32Array; at: number }) {
  const bars = useMemo(() => peaks(samples, BARS), [samples]);
  return (
    <svg
      className="wave"
      viewBox={`0 0 ${BARS} 48`}
      preserveAspectRatio="none"
      role="img"
      aria-label={strings.play.loudnessOverTime}
    >
      {bars.map((peak, index) => {
        const height = Math.max(1, peak * 44);
        return (
          <rect
            key={index}
            className={index / BARS < at ? "played" : ""}
            x={index + 0.15}
            y={24 - height / 2}
            width={0.7}
            height={height}
          />
        );
      })}
    </svg>
  );
}

/** Silences what plays while it is made. */
export function MuteButton({ muted, onChange }: { muted: boolean; onChange: (muted: boolean) => void }) {
  return (
    <IconButton
      label={muted ? strings.play.unmute : strings.play.mute}
      aria-pressed={muted}
      onClick={() => onChange(!muted)}
    >
      {muted ? <VolumeX size={15} /> : <Volume2 size={15} />}
    </IconButton>
  );
}

function VideoOutput({ output, onSave }: OutputProps) {
  const made = output.made.at(-1);
  if (!made) return null;
  return (
    <section className="wg-play-output" aria-label={labelOf(output.name)}>
      <header>
        <h3>{labelOf(output.name)}</h3>
        <IconButton label={strings.play.download(output.name)} onClick={() => onSave(output, made)}>
          <Download size={14} />
        </IconButton>
      </header>
      <video controls src={dataUrl(made.value)} aria-label={labelOf(output.name)} />
    </section>
  );
}

// ── numbers ─────────────────────────────────────────────────────────────────────────────────────

const CURVES = ["actions", "state", "scalar"];
const MOST_CURVES = 32;
/** Written out; the curve has them all. */
const MOST_LISTED = 60;

function NumbersOutput({ output }: OutputProps) {
  const made = output.made.at(-1);
  const tensor = useMemo(() => (made ? tensorOf(made.value) : null), [made]);
  const row = useMemo(() => rowOf(output.made.map(({ value }) => value)), [output.made]);
  if (!made) return null;
  const count = output.made.length + output.left;
  if (row) return <RowOutput output={output} row={row} />;
  return (
    <section className="wg-play-output" aria-label={labelOf(output.name)}>
      <header>
        <h3>{labelOf(output.name)}</h3>
        {tensor && <span className="tag">{shapeWords(tensor.shape)}</span>}
        {count > 1 && <span className="tag">{strings.play.theLast(count)}</span>}
        <CopyButton text={JSON.stringify(made.value)} label={strings.play.copyAsJson(output.name)} />
      </header>
      {tensor ? <TensorView tensor={tensor} type={made.value.type} /> : <Plain made={made} />}
    </section>
  );
}

/** Few numbers at a time, many times: all that came, the newest last. */
function RowOutput({ output, row }: { output: OutputShown; row: Tensor }) {
  const [count = 0, size = 0] = row.shape;
  const matrix = { values: row.values, rows: count, columns: size };
  const shown = size === 1 ? [...row.values].slice(-MOST_LISTED) : [];
  return (
    <section className="wg-play-output" aria-label={labelOf(output.name)}>
      <header>
        <h3>{labelOf(output.name)}</h3>
        <span className="tag">{shapeWords(size === 1 ? [count + output.left] : [count + output.left, size])}</span>
        {output.left > 0 && <span className="tag">{strings.play.inTheMiddleOmitted(output.left)}</span>}
        <CopyButton
          text={JSON.stringify(output.made.map(({ value }) => value))}
          label={strings.play.copyAsJson(output.name)}
        />
      </header>
      {shown.length > 0 && (
        <ol className="row" start={count - shown.length + 1}>
          {shown.map((value, index) => (
            <li key={count - shown.length + index}>{Number(value.toPrecision(Number.isInteger(value) ? 7 : 4))}</li>
          ))}
        </ol>
      )}
      <Curves matrix={matrix} />
    </section>
  );
}

function Plain({ made }: { made: Made }) {
  const fact = factOf(made.value);
  if (fact !== null) return <p className="single">{fact}</p>;
  const { type: _, ...fields } = made.value;
  const value = "value" in fields ? String(fields["value"]) : JSON.stringify(fields, null, 1);
  return <pre className="plain">{value.slice(0, 20_000)}</pre>;
}

export function TensorView({ tensor, type }: { tensor: Tensor; type: string }) {
  const matrix = matrixOf(tensor);
  if (tensor.values.length === 1) return <p className="single">{tensor.values[0]?.toPrecision(6)}</p>;
  const asCurves =
    CURVES.includes(type) || matrix.columns === 1 || (matrix.columns <= 8 && matrix.rows > matrix.columns);
  if (asCurves && matrix.columns <= MOST_CURVES && matrix.rows > 1) return <Curves matrix={matrix} />;
  return <Heat matrix={matrix} />;
}

interface Matrix {
  values: Float32Array;
  rows: number;
  columns: number;
}

const WIDTH = 600;
const HEIGHT = 160;

function Curves({ matrix }: { matrix: Matrix }) {
  const [low, high] = bounds(matrix.values);
  const box = { width: WIDTH, height: HEIGHT, low, high };
  const [lit, setLit] = useState<number | null>(null);
  const columns = Array.from({ length: matrix.columns }, (_, index) => index);
  return (
    <div className="curves">
      <div className="scale" aria-hidden>
        <span>{high.toPrecision(3)}</span>
        <span>{low.toPrecision(3)}</span>
      </div>
      <svg
        viewBox={`-2 -4 ${WIDTH + 4} ${HEIGHT + 8}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={strings.play.curvesOverSteps(
          matrix.columns,
          matrix.rows,
          low.toPrecision(3),
          high.toPrecision(3),
        )}
      >
        {low < 0 && high > 0 && (
          <line
            className="zero"
            x1={0}
            x2={WIDTH}
            y1={(high / (high - low)) * HEIGHT}
            y2={(high / (high - low)) * HEIGHT}
          />
        )}
        {columns.map((column) => (
          <path
            key={column}
            d={curve(matrix, column, box)}
            style={{ stroke: hue(column, matrix.columns) }}
            className={lit !== null && lit !== column ? "dim" : ""}
          />
        ))}
      </svg>
      {matrix.columns > 1 && (
        <ul className="wg-inline legend" onPointerLeave={() => setLit(null)}>
          {columns.map((column) => (
            <li key={column} onPointerEnter={() => setLit(column)} className={lit === column ? "lit" : ""}>
              <i style={{ background: hue(column, matrix.columns) }} /> {column + 1}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function hue(index: number, of: number): string {
  return `oklch(0.64 0.15 ${Math.round((index * 360) / Math.max(of, 1) + 250) % 360})`;
}

/** Symmetric about zero where there are both signs: blue below, red above. */
function Heat({ matrix }: { matrix: Matrix }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const small = useMemo(() => shrunk(matrix, 256), [matrix]);
  const [low, high] = bounds(small.values);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || small.rows < 1) return;
    const picture = context.createImageData(small.columns, small.rows);
    small.values.forEach((value, index) => picture.data.set(shade(value, low, high), index * 4));
    context.putImageData(picture, 0, 0);
  }, [small, low, high]);
  return (
    <figure className="heat">
      <canvas
        ref={canvas}
        width={small.columns}
        height={Math.max(1, small.rows)}
        role="img"
        aria-label={strings.play.heatMapOfRows(matrix.rows, matrix.columns, low.toPrecision(3), high.toPrecision(3))}
      />
      <figcaption>
        <span>{low.toPrecision(3)}</span>
        <i className={low < 0 && high > 0 ? "both" : "one"} />
        <span>{high.toPrecision(3)}</span>
      </figcaption>
    </figure>
  );
}

function shade(value: number, low: number, high: number): [number, number, number, number] {
  if (!Number.isFinite(value)) return [0, 0, 0, 0];
  const both = low < 0 && high > 0;
  const most = both ? Math.max(-low, high) : high - low || 1;
  const part = both ? value / most : (value - low) / most;
  const mix = (from: number[], to: number[], share: number) =>
    from.map((start, index) => Math.round(start + ((to[index] ?? 0) - start) * share));
  const light = [247, 247, 247];
  const [r = 0, g = 0, b = 0] =
    part < 0 ? mix(light, [33, 102, 172], -part) : mix(light, both ? [178, 24, 43] : [59, 40, 130], part);
  return [r, g, b, 255];
}
