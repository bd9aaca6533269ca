// The widgets of a task's form: one for each kind of input and parameter.
import { Camera, Dices, FileUp, Lock, LockOpen, Mic, RotateCcw, Square, X } from "lucide-react";
import { useEffect, useId, useRef, useState, type ChangeEvent, type DragEvent } from "react";
import { Button, Dialog, Field, IconButton, Input, Select, Prose } from "../../ui/kit";
import { showBytes } from "../../ui/words";
import { labelOf, MAX_SEED, sliderOf } from "../model/form";
import { dataUrl, denial, frameOf, mediaOf, Recorder, words } from "../files/media";
import { parseNumbers, shapeWords } from "../model/numbers";
import { Range } from "../../ui/Range";
import type { Media, ParamShown, Part, Scalar, Seed } from "../model/types";
import { strings } from "../../strings";

/** A description, what stands in backticks as code. */
// ── parts of inputs ─────────────────────────────────────────────────────────────────────────────

interface PartProps {
  part: Part;
  /** Its accessible name. */
  label: string;
  fault?: string | undefined;
  onChange: (change: Partial<Part>) => void;
  onRun: () => void;
}

export function TextPart({ part, label, fault, onChange }: PartProps) {
  const rows = Math.min(12, Math.max(2, part.text.split("\n").length + Math.floor(part.text.length / 60)));
  return (
    <textarea
      className="wg-input"
      aria-label={label}
      aria-invalid={Boolean(fault)}
      rows={rows}
      value={part.text}
      onChange={(event) => onChange({ text: event.target.value })}
    />
  );
}

export function NumbersPart({ part, label, fault, onChange }: PartProps) {
  const found = part.text.trim() ? parseNumbers(part.text) : null;
  return (
    <>
      <textarea
        className="wg-input wg-play-numbers"
        aria-label={label}
        aria-invalid={Boolean(fault)}
        rows={3}
        spellCheck={false}
        placeholder={strings.play.n010203OneRowALine}
        value={part.text}
        onChange={(event) => onChange({ text: event.target.value })}
      />
      <div className={fault ? "wg-play-fault" : "wg-play-hint"} role={fault ? "alert" : undefined}>
        {fault ?? (found?.ok ? shapeWords(found.shape) : "")}
      </div>
    </>
  );
}

const ACCEPT: Record<string, string> = { image: "image/*", audio: "audio/*", video: "video/*", bytes: "*/*" };

export function MediaPart({ part, label, onChange }: PartProps) {
  const [problem, setProblem] = useState<string | null>(null);
  const [over, setOver] = useState(false);
  const [live, setLive] = useState(false);
  const chooser = useRef<HTMLInputElement>(null);
  const take = async (file: Blob & { name?: string }) => {
    try {
      onChange({ media: await mediaOf(file, part.modality, file.name ?? strings.play.pasted(words(part.modality))) });
      setProblem(null);
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const [file] = event.dataTransfer.files;
    if (file) void take(file);
  };
  const chosen = (event: ChangeEvent<HTMLInputElement>) => {
    const file = event.target.files?.[0];
    if (file) void take(file);
    event.target.value = "";
  };
  return (
    <div
      className={`wg-play-drop ${over ? "over" : ""} ${part.media ? "full" : ""}`}
      onDragOver={(event) => (event.preventDefault(), setOver(true))}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      {part.media ? (
        <MediaShown media={part.media} onClear={() => onChange({ media: null })} />
      ) : (
        <p>{strings.play.dropOrPasteAHere(words(part.modality))}</p>
      )}
      <div className="buttons">
        <input
          ref={chooser}
          type="file"
          hidden
          aria-label={strings.play.file(label)}
          accept={ACCEPT[part.modality]}
          onChange={chosen}
        />
        <Button aria-label={strings.play.chooseAFile(label)} onClick={() => chooser.current?.click()}>
          <FileUp size={14} aria-hidden /> {part.media ? strings.play.replace : strings.play.file2}
        </Button>
        {part.modality === "image" && (
          <Button aria-label={strings.play.takeAPicture(label)} onClick={() => setLive(true)}>
            <Camera size={14} aria-hidden /> {strings.play.camera}
          </Button>
        )}
        {part.modality === "audio" && (
          <Microphone label={label} onMade={(media) => onChange({ media })} onProblem={setProblem} />
        )}
      </div>
      {problem && (
        <div className="wg-play-fault" role="alert">
          {problem}
        </div>
      )}
      {live && <Webcam onClose={() => setLive(false)} onTaken={(media) => (onChange({ media }), setLive(false))} />}
    </div>
  );
}

function MediaShown({ media, onClear }: { media: Media; onClear: () => void }) {
  const size = showBytes(Math.floor((media.data.length * 3) / 4));
  return (
    <div className="media">
      {media.mime.startsWith("image/") && <img src={dataUrl(media)} alt={media.name} />}
      {media.mime.startsWith("audio/") && <audio controls src={dataUrl(media)} aria-label={media.name} />}
      {media.mime.startsWith("video/") && <video controls src={dataUrl(media)} aria-label={media.name} />}
      <span className="about" title={media.name}>
        {media.name} · {size}
      </span>
      <IconButton label={strings.play.remove(media.name)} onClick={onClear}>
        <X size={14} />
      </IconButton>
    </div>
  );
}

function Webcam({ onClose, onTaken }: { onClose: () => void; onTaken: (media: Media) => void }) {
  const video = useRef<HTMLVideoElement>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [ready, setReady] = useState(false);
  useEffect(() => {
    let stream: MediaStream | null = null;
    let gone = false;
    const open = async () => {
      try {
        const found = await navigator.mediaDevices.getUserMedia({ video: true });
        if (gone) return found.getTracks().forEach((track) => track.stop());
        stream = found;
        if (video.current) video.current.srcObject = found;
      } catch (error) {
        setProblem(denial(error, "camera"));
      }
    };
    void open();
    return () => {
      gone = true;
      stream?.getTracks().forEach((track) => track.stop());
    };
  }, []);
  const footer = (
    <Button
      kind="primary"
      disabled={!ready}
      onClick={() => void (video.current && frameOf(video.current).then(onTaken))}
    >
      <Camera size={14} aria-hidden /> {strings.play.takePicture}
    </Button>
  );
  return (
    <Dialog title={strings.play.camera} onClose={onClose} footer={footer}>
      {problem ? (
        <p className="wg-play-fault" role="alert">
          {problem}
        </p>
      ) : (
        <video
          ref={video}
          className="wg-play-webcam"
          autoPlay
          muted
          playsInline
          aria-label={strings.play.whatTheCameraSees}
          onLoadedData={() => setReady(true)}
        />
      )}
    </Dialog>
  );
}

interface MicrophoneProps {
  label: string;
  onMade: (media: Media) => void;
  onProblem: (problem: string | null) => void;
}

function Microphone({ label, onMade, onProblem }: MicrophoneProps) {
  const [recorder, setRecorder] = useState<Recorder | null>(null);
  const [level, setLevel] = useState(0);
  useEffect(() => {
    if (!recorder) return;
    const timer = setInterval(() => setLevel(recorder.level()), 100);
    return () => {
      clearInterval(timer);
      recorder.cancel();
    };
  }, [recorder]);
  const start = async () => {
    try {
      setRecorder(await Recorder.start());
      onProblem(null);
    } catch (error) {
      onProblem(denial(error, "microphone"));
    }
  };
  const stop = async () => {
    if (!recorder) return;
    try {
      onMade(await recorder.stop());
    } catch (error) {
      onProblem((error as Error).message);
    }
    setRecorder(null);
  };
  if (!recorder) {
    return (
      <Button aria-label={strings.play.record(label)} onClick={() => void start()}>
        <Mic size={14} aria-hidden /> {strings.play.record2}
      </Button>
    );
  }
  return (
    <Button kind="danger" aria-label={strings.play.endTheRecording(label)} onClick={() => void stop()}>
      <Square size={14} aria-hidden /> {strings.play.stop}
      <meter min={0} max={1} value={level} aria-label={strings.play.loudness} />
    </Button>
  );
}

// ── parameters ──────────────────────────────────────────────────────────────────────────────────

interface ParamProps {
  name: string;
  param: ParamShown;
  /** undefined: the default. */
  value: Scalar | undefined;
  fault?: string | undefined;
  onChange: (value: Scalar | undefined) => void;
}

export function ParamField({ name, param, value, fault, onChange }: ParamProps) {
  const label = labelOf(name);
  const changed = value !== undefined && value !== param.default;
  const reset = changed && param.default !== null && (
    <IconButton
      label={strings.play.resetWithDefault(label, String(param.default))}
      onClick={() => onChange(undefined)}
    >
      <RotateCcw size={12} />
    </IconButton>
  );
  const shown = value ?? param.default;
  if (param.type === "boolean") {
    return <Switch label={label} param={param} value={shown === true} onChange={onChange} aside={reset} />;
  }
  const numeric = (param.type === "integer" || param.type === "number") && param.choices.length === 0;
  const slider = numeric ? sliderOf(param) : null;
  const unreadable = typeof shown !== "number";
  return (
    <div className={`wg-play-param ${changed ? "changed" : ""}`}>
      <Field label={label} hint={<Prose text={param.description} />} error={fault ?? null} aside={reset}>
        {(props) => {
          if (param.choices.length > 0) return <Choice {...props} param={param} value={shown} onChange={onChange} />;
          if (!numeric) {
            return (
              <textarea
                {...props}
                className="wg-input"
                rows={Math.min(5, 1 + Math.floor(String(shown ?? "").length / 48))}
                value={String(shown ?? "")}
                onChange={(event) => onChange(event.target.value)}
              />
            );
          }
          return (
            <div className="wg-play-number">
              {slider && (
                <Range
                  aria-label={strings.play.slider(label)}
                  {...slider}
                  value={unreadable ? slider.min : shown}
                  onChange={onChange}
                />
              )}
              <NumberBox {...props} param={param} value={shown} onChange={onChange} />
            </div>
          );
        }}
      </Field>
    </div>
  );
}

interface BoxProps {
  id: string;
  "aria-describedby": string;
  "aria-invalid": boolean;
  param: ParamShown;
  value: Scalar | null;
  onChange: (value: Scalar | undefined) => void;
}

/** Keeps the typed text unchanged, such as `0.` on the way to `0.5`. */
function NumberBox({ param, value, onChange, ...props }: BoxProps) {
  const [text, setText] = useState(String(value ?? ""));
  if (Number(text) !== value && text !== value && !(text === "" && value === null)) setText(String(value ?? ""));
  const type = (typed: string) => {
    setText(typed);
    const number = Number(typed);
    onChange(typed.trim() !== "" && Number.isFinite(number) ? number : typed);
  };
  return (
    <Input
      {...props}
      inputMode={param.type === "integer" ? "numeric" : "decimal"}
      value={text}
      onChange={(event) => type(event.target.value)}
    />
  );
}

function Choice({ param, value, onChange, ...props }: BoxProps) {
  const options = param.choices.map((choice) => ({ value: JSON.stringify(choice), label: String(choice) }));
  return (
    <Select
      {...props}
      value={JSON.stringify(value)}
      options={options}
      onChange={(chosen) => onChange(JSON.parse(chosen) as Scalar)}
    />
  );
}

interface SwitchProps {
  label: string;
  param: ParamShown;
  value: boolean;
  onChange: (value: boolean) => void;
  aside: React.ReactNode;
}

function Switch({ label, param, value, onChange, aside }: SwitchProps) {
  const id = useId();
  return (
    <div className="wg-play-switch">
      <input
        id={id}
        type="checkbox"
        checked={value}
        aria-describedby={`${id}-hint`}
        onChange={(event) => onChange(event.target.checked)}
      />
      <label htmlFor={id}>{label}</label>
      {aside}
      <div id={`${id}-hint`} className="wg-play-hint">
        <Prose text={param.description} />
      </div>
    </div>
  );
}

export function SeedField({
  seed,
  fault,
  onChange,
}: {
  seed: Seed;
  fault?: string | undefined;
  onChange: (seed: Seed) => void;
}) {
  const draw = () =>
    onChange({ text: String(Math.floor(Math.random() * Math.min(MAX_SEED, 2 ** 32))), locked: true });
  const hint = seed.locked
    ? strings.play.everyRunUsesThisSeed
    : seed.text
      ? strings.play.seedOfTheLastRun
      : strings.play.aNewSeedForEach;
  return (
    <Field label={strings.play.seed2} hint={hint} error={fault ?? null}>
      {(props) => (
        <div className={`wg-play-seed ${seed.locked ? "locked" : ""}`}>
          <Input
            {...props}
            inputMode="numeric"
            placeholder={strings.play.random}
            value={seed.text}
            onChange={(event) => onChange({ text: event.target.value, locked: event.target.value !== "" })}
          />
          <IconButton label={strings.play.drawASeed} onClick={draw}>
            <Dices size={15} />
          </IconButton>
          <IconButton
            label={seed.locked ? strings.play.unlockTheSeed : strings.play.keepThisSeed}
            aria-pressed={seed.locked}
            disabled={seed.text === ""}
            onClick={() => onChange({ ...seed, locked: !seed.locked })}
          >
            {seed.locked ? <Lock size={15} /> : <LockOpen size={15} />}
          </IconButton>
        </div>
      )}
    </Field>
  );
}
