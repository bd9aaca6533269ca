// Files, the camera and the microphone as values of a form; sounds that play while they are made. Browser only.
import { toBase64, toBytes } from "../../api/base64";
import type { Media } from "../model/types";
import type { ValueShown } from "../../messages/answers";
import { concatenated, mixed, readWav, writeWav, type Sound } from "./wav";
import { strings } from "../../strings";

/** Pictures that the service reads as they are; others become PNG here. */
const PICTURES = ["image/png", "image/jpeg", "image/webp"];
const SOUNDS = ["audio/wav", "audio/x-wav", "audio/flac", "audio/ogg"];
const MOST_BYTES = 24 * 1024 * 1024;

export function dataUrl(value: { mime?: string; data?: string }): string {
  return `data:${value.mime ?? "application/octet-stream"};base64,${value.data ?? ""}`;
}

/** True if a file can be a value of such an input. */
export function fits(modality: string, mime: string): boolean {
  return modality === "bytes" || mime.startsWith(`${modality}/`);
}

/** Raises Error with a sentence for the user. */
export async function mediaOf(file: Blob, modality: string, name: string): Promise<Media> {
  if (!fits(modality, file.type))
    throw new Error(strings.play.thisIsNotAFile(words(modality), file.type || strings.play.ofUnknownType));
  if (file.size > MOST_BYTES) throw new Error(strings.play.thisFileIsLargerThan);
  if (modality === "image") {
    const seen = await picture(file);
    if (!PICTURES.includes(file.type)) return pngOf(seen, name);
    seen.close();
  }
  if (modality === "audio" && !SOUNDS.includes(file.type)) return wavOf(await decoded(file), name);
  const mime = file.type === "audio/x-wav" ? "audio/wav" : file.type;
  return { mime, data: toBase64(new Uint8Array(await file.arrayBuffer())), name };
}

export function words(modality: string): string {
  return { image: "picture", audio: "sound", video: "video" }[modality] ?? "file";
}

async function picture(file: Blob): Promise<ImageBitmap> {
  try {
    return await createImageBitmap(file);
  } catch {
    throw new Error(strings.play.thisPictureCantBeRead);
  }
}

async function decoded(file: Blob): Promise<AudioBuffer> {
  const context = new AudioContext();
  try {
    return await context.decodeAudioData(await file.arrayBuffer());
  } catch {
    throw new Error(strings.play.thisSoundCantBeRead);
  } finally {
    await context.close();
  }
}

async function pngOf(source: ImageBitmap | HTMLVideoElement, name: string): Promise<Media> {
  const [width, height] =
    source instanceof HTMLVideoElement ? [source.videoWidth, source.videoHeight] : [source.width, source.height];
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d")?.drawImage(source, 0, 0);
  const blob = await canvas.convertToBlob({ type: "image/png" });
  return { mime: "image/png", data: toBase64(new Uint8Array(await blob.arrayBuffer())), name };
}

function wavOf(buffer: AudioBuffer, name: string): Media {
  const channels = Array.from({ length: buffer.numberOfChannels }, (_, index) => buffer.getChannelData(index));
  const samples = mixed({ rate: buffer.sampleRate, channels });
  return { mime: "audio/wav", data: toBase64(writeWav(samples, buffer.sampleRate)), name };
}

/** The present picture of a running camera. */
export function frameOf(video: HTMLVideoElement): Promise<Media> {
  return pngOf(video, "camera.png");
}

/** Why the camera or the microphone can't be had. */
export function denial(error: unknown, what: "camera" | "microphone"): string {
  const name = error instanceof DOMException ? error.name : "";
  if (name === "NotAllowedError") return strings.play.theBrowserBlocksTheAllow(what);
  if (name === "NotFoundError") return strings.play.noWasFoundConnectOne(what);
  if (navigator.mediaDevices === undefined) return strings.play.browsersAllowTheOnHttps(what);
  return strings.play.theCantBeUsedNow(what);
}

/** Records until `stop`, which gives the sound as 16-bit WAV. */
export class Recorder {
  private readonly pieces: Blob[] = [];

  private constructor(
    private readonly stream: MediaStream,
    private readonly recorder: MediaRecorder,
    private readonly context: AudioContext,
    private readonly analyser: AnalyserNode,
  ) {
    recorder.ondataavailable = (event) => this.pieces.push(event.data);
    recorder.start();
  }

  static async start(): Promise<Recorder> {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    const context = new AudioContext();
    const analyser = context.createAnalyser();
    analyser.fftSize = 512;
    context.createMediaStreamSource(stream).connect(analyser);
    return new Recorder(stream, new MediaRecorder(stream), context, analyser);
  }

  /** How loud it is, in [0, 1]. */
  level(): number {
    const samples = new Float32Array(this.analyser.fftSize);
    this.analyser.getFloatTimeDomainData(samples);
    return Math.min(1, Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length) * 4);
  }

  async stop(): Promise<Media> {
    const stopped = new Promise((resolve) => (this.recorder.onstop = resolve));
    this.recorder.stop();
    await stopped;
    this.release();
    return wavOf(await decoded(new Blob(this.pieces, { type: this.recorder.mimeType })), "recording.wav");
  }

  cancel(): void {
    if (this.recorder.state !== "inactive") this.recorder.stop();
    this.release();
  }

  private release(): void {
    for (const track of this.stream.getTracks()) track.stop();
    if (this.context.state !== "closed") void this.context.close();
  }
}

/** How long a piece waits that nothing sounds before, so that the next one comes before it ends; seconds. */
const AHEAD = 0.06;

/** Plays pieces of a sound one after the other, as they come, without a gap where one comes in time. */
export class Player {
  /** One for the page: to open the device takes longer than a run needs to begin. */
  private context: AudioContext | null = null;
  /** The sound that is played passes through it; null: stopped. */
  private gain: GainNode | null = null;
  private upTo = 0;

  /** To be called where the user pressed something: browsers play nothing otherwise. */
  ready(): void {
    this.context ??= new AudioContext();
    if (!this.gain) {
      this.gain = this.context.createGain();
      this.gain.connect(this.context.destination);
    }
    void this.context.resume();
  }

  /** Sound that arrives after `stop` is not played. */
  add(sound: Sound): void {
    const { context, gain } = this;
    const samples = mixed(sound);
    if (!context || !gain || samples.length === 0) return;
    const buffer = context.createBuffer(1, samples.length, sound.rate);
    buffer.copyToChannel(samples, 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(gain);
    const now = context.currentTime;
    const at = this.upTo > now ? this.upTo : now + AHEAD;
    source.start(at);
    this.upTo = at + buffer.duration;
  }

  mute(muted: boolean): void {
    if (this.gain) this.gain.gain.value = muted ? 0 : 1;
  }

  stop(): void {
    this.gain?.disconnect();
    this.gain = null;
    void this.context?.suspend();
    this.upTo = 0;
  }
}

/** All pieces of a sound as one WAV; a single piece, or pieces that are no WAV, as they are. */
export function wholeSound(values: readonly ValueShown[]): { bytes: Uint8Array<ArrayBuffer>; mime: string } | null {
  const pieces = values.map((value) => toBytes(value.data ?? ""));
  const [first] = pieces;
  if (!first) return null;
  if (pieces.length === 1) return { bytes: first, mime: values[0]?.mime ?? "" };
  const sounds = pieces.map(readWav).filter((sound) => sound !== null);
  const all = sounds.length === pieces.length ? concatenated(sounds) : null;
  return all
    ? { bytes: writeWav(all.samples, all.rate), mime: "audio/wav" }
    : { bytes: first, mime: values[0]?.mime ?? "" };
}

/** A small picture as a `data:` URL; null where the browser can't read it. */
export async function thumbnail(value: { mime?: string; data?: string }, side = 96): Promise<string | null> {
  try {
    const bitmap = await createImageBitmap(new Blob([toBytes(value.data ?? "")], { type: value.mime ?? "" }));
    const scale = Math.min(1, side / Math.max(bitmap.width, bitmap.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(bitmap.width * scale));
    canvas.height = Math.max(1, Math.round(bitmap.height * scale));
    canvas.getContext("2d")?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/png");
  } catch {
    return null;
  }
}
