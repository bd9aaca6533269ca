// One value that was looked at: what it is, its statistics and histogram, and a preview by its kind.
import { Play, Square } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { toBytes } from "../api/base64";
import type { SampleEvent, SamplePreview, Statistics } from "../messages/frames";
import { IconButton } from "../ui/kit";
import { color, glyph } from "../ui/modality";
import { showBytes, showSeconds } from "../ui/words";
import {
  alarm,
  bars,
  binWords,
  figure,
  heatColor,
  heatPixels,
  mimeOf,
  picturePixels,
  rowsOf,
  soundOf,
  typeWords,
  wave,
  type Pixels,
} from "./looks";
import { strings } from "../strings";

type Of<K extends SamplePreview["kind"]> = Extract<SamplePreview, { kind: K }>;

/** `title`: what it is called where there are several. */
export function SampleView({ sample, title }: { sample: SampleEvent; title?: string }) {
  const { statistics, preview, modality } = sample;
  return (
    <div className="wg-sample">
      <div className="kind">
        <i aria-hidden style={{ color: color(modality) }}>
          {glyph(modality)}
        </i>
        {title && <strong>{title}</strong>}
        <span>{modality}</span>
        <code>{typeWords(sample)}</code>
      </div>
      {preview && <PreviewView preview={preview} />}
      {statistics && <StatisticsView statistics={statistics} />}
    </div>
  );
}

export function StatisticsView({ statistics }: { statistics: Statistics }) {
  const { low, high, mean, std, count, histogram, every } = statistics;
  const wrong = alarm(statistics);
  return (
    <div className="wg-statistics">
      {histogram.length > 0 && low < high && <Histogram statistics={statistics} />}
      {wrong && <p className="wrong">{wrong}</p>}
      <dl>
        <Figure name="least" value={figure(low)} />
        <Figure name="mean" value={figure(mean)} />
        <Figure name="most" value={figure(high)} />
        <Figure name="spread" value={figure(std)} title={strings.taps.standardDeviation} />
        <Figure name="numbers" value={count.toLocaleString("en")} />
        {every > 1 && (
          <Figure
            name={strings.taps.sampled}
            value={strings.taps.oneIn(every)}
            title={strings.taps.evenlySpreadOverTheTensor}
          />
        )}
      </dl>
    </div>
  );
}

function Figure({ name, value, title }: { name: string; value: string; title?: string }) {
  return (
    <div title={title}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

export function Histogram({ statistics }: { statistics: Statistics }) {
  const { low, high, histogram } = statistics;
  const width = 100 / histogram.length;
  const words = strings.taps.equalBins(histogram.length, figure(low), figure(high));
  return (
    <figure className="wg-histogram">
      <svg viewBox="0 0 100 32" preserveAspectRatio="none" role="img" aria-label={words}>
        {bars(histogram).map((height, bin) => (
          <g key={bin}>
            <title>{binWords(statistics, bin)}</title>
            <rect className="hit" x={bin * width} y={0} width={width} height={32} />
            <rect x={bin * width + 0.2} y={32 - height * 32} width={width - 0.4} height={height * 32} />
          </g>
        ))}
        {low < 0 && high > 0 && <line x1={(-low / (high - low)) * 100} x2={(-low / (high - low)) * 100} y2={32} />}
      </svg>
      <figcaption>
        <span>{figure(low)}</span>
        <span>{figure(high)}</span>
      </figcaption>
    </figure>
  );
}

export function PreviewView({ preview }: { preview: SamplePreview }) {
  switch (preview.kind) {
    case "text":
      return <pre className="wg-sample-text">{preview.text || strings.taps.emptyText}</pre>;
    case "numbers":
      return <Numbers preview={preview} />;
    case "picture":
      return <Picture preview={preview} />;
    case "heat":
      return <Heat preview={preview} />;
    case "sound":
      return <Sound preview={preview} />;
    case "media":
      return <Media preview={preview} />;
  }
}

function Numbers({ preview }: { preview: Of<"numbers"> }) {
  return (
    <div className="wg-sample-numbers" tabIndex={0} aria-label={strings.taps.theFirstNumbers}>
      <table>
        <tbody>
          {rowsOf(preview).map((row, index) => (
            <tr key={index}>
              {row.map((value, column) => (
                <td key={column}>{figure(value)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Picture({ preview }: { preview: Of<"picture"> }) {
  const pixels = useMemo(() => picturePixels(preview), [preview]);
  return <PixelsView pixels={pixels} label={strings.taps.aPictureOfByPixels(preview.width, preview.height)} />;
}

function Heat({ preview }: { preview: Of<"heat"> }) {
  const pixels = useMemo(() => heatPixels(preview), [preview]);
  const { low, high, rows, columns } = preview;
  const words = strings.taps.rowsByColumnsDark(rows, columns, figure(low), figure(high));
  const stops = Array.from({ length: 6 }, (_, index) => `rgb(${heatColor(index / 5).join(" ")})`);
  return (
    <>
      <PixelsView pixels={pixels} label={words} />
      <div className="wg-scale">
        <span>{figure(low)}</span>
        <i aria-hidden style={{ background: `linear-gradient(90deg, ${stops.join(", ")})` }} />
        <span>{figure(high)}</span>
      </div>
    </>
  );
}

function PixelsView({ pixels, label }: { pixels: Pixels | null; label: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    if (!pixels) return;
    canvas.current?.getContext("2d")?.putImageData(new ImageData(pixels.rgba, pixels.width, pixels.height), 0, 0);
  }, [pixels]);
  if (!pixels) return <p className="wg-quiet">{strings.taps.thisPreviewCantBeDrawn}</p>;
  const { width, height } = pixels;
  return (
    <canvas
      ref={canvas}
      className="wg-pixels"
      width={width}
      height={height}
      style={{ aspectRatio: `${width} / ${height}`, width: Math.min(228, Math.max(96, width * 3)) }}
      role="img"
      aria-label={label}
      title={label}
    />
  );
}

const WAVE = 114;

function Sound({ preview }: { preview: Of<"sound"> }) {
  const samples = useMemo(() => soundOf(preview), [preview]);
  const shape = useMemo(() => {
    const blocks = wave(samples, WAVE);
    return blocks.map(([low, high], at) => `M${at * 2 + 1},${20 - high * 19}V${20.5 - low * 19}`).join("");
  }, [samples]);
  const [playing, toggle] = usePlaying(samples, preview.rate);
  const seconds = showSeconds(samples.length / preview.rate);
  return (
    <div className="wg-sample-sound">
      <IconButton
        label={playing ? strings.taps.stop : strings.taps.play}
        disabled={samples.length === 0}
        onClick={toggle}
      >
        {playing ? <Square size={14} /> : <Play size={14} />}
      </IconButton>
      <svg
        viewBox={`0 0 ${WAVE * 2} 40`}
        preserveAspectRatio="none"
        role="img"
        aria-label={strings.taps.ofSound(seconds)}
      >
        <path d={shape} />
      </svg>
      <small>{strings.taps.hz(seconds, preview.rate)}</small>
    </div>
  );
}

/** Plays until its end, or until it is stopped, replaced or taken away. */
function usePlaying(samples: Float32Array<ArrayBuffer>, rate: number): [boolean, () => void] {
  const [playing, setPlaying] = useState(false);
  const stop = useRef<(() => void) | null>(null);
  useEffect(() => () => stop.current?.(), [samples]);
  const toggle = () => {
    if (stop.current) return stop.current();
    const context = new AudioContext();
    const buffer = context.createBuffer(1, samples.length, rate);
    buffer.copyToChannel(samples, 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    stop.current = () => {
      stop.current = null;
      source.onended = null;
      void context.close();
      setPlaying(false);
    };
    source.onended = stop.current;
    source.start();
    setPlaying(true);
  };
  return [playing, toggle];
}

function Media({ preview }: { preview: Of<"media"> }) {
  const [url, mime] = useMemo(() => {
    const mime = preview.data ? mimeOf(toBytes(preview.data)) : null;
    return [mime ? `data:${mime};base64,${preview.data}` : null, mime] as const;
  }, [preview]);
  if (url === null) {
    const why = preview.data ? strings.taps.ofAKindThatCant : strings.taps.tooLargeToBeShown;
    return (
      <p className="wg-quiet">
        {showBytes(preview.nbytes)}, {why}.
      </p>
    );
  }
  if (mime?.startsWith("audio/")) return <audio className="wg-sample-media" controls src={url} />;
  if (mime?.startsWith("video/")) return <video className="wg-sample-media" controls src={url} />;
  return <img className="wg-sample-media" src={url} alt={strings.taps.aPicture(showBytes(preview.nbytes))} />;
}
