// A task as the service shows it, and what a person has given for it.
import type { ApprovalEvent, Usage, ValueShown } from "../../messages/answers";

export type Scalar = boolean | number | string;

export interface InputShown {
  modality: string;
  many: boolean;
  optional: boolean;
  /** Taken if a request doesn't give it. null: there is none. */
  default?: Scalar | readonly number[] | null;
  description: string;
}

export interface ParamShown {
  type: "integer" | "number" | "boolean" | "string";
  /** null: it must be given. */
  default: Scalar | null;
  min: number | null;
  max: number | null;
  choices: Scalar[];
  description: string;
}

/** `GET /v1/tasks/{deployment}`: one of its list. */
export interface TaskShown {
  deployment: string;
  name: string;
  label: string;
  inputs: Record<string, InputShown>;
  outputs: string[];
  params: Record<string, ParamShown>;
  /** Its states persist in requests that name the same session. */
  session: boolean;
  schema: Record<string, unknown>;
}

/** One value of an input. */
export interface Part {
  /** Key of the row, unique in the form. */
  key: string;
  /** Which input it is a value of. */
  input: string;
  modality: string;
  /** Text; of what is neither text nor media, numbers as written. */
  text: string;
  media: Media | null;
  /** The turn of a conversation that it belongs to. */
  turn?: { key: string; role: Role };
}

export type Role = "system" | "user" | "assistant" | "tool";

export interface Media {
  mime: string;
  /** base64, without a `data:` head. */
  data: string;
  /** Name of the file, or where it came from. */
  name: string;
}

/** The form of one task. */
export interface Given {
  /** In the order shown; in `ordered` mode that of the request. */
  parts: Part[];
  /** Send the parts in the order of the list, whichever inputs they are of. */
  ordered: boolean;
  /** Changes from the defaults; an invalid number is kept as the typed text. */
  params: Record<string, Scalar>;
  seed: Seed;
}

export interface Seed {
  /** As typed, or the one that the last run drew; empty: none yet. */
  text: string;
  /** Sent with the next run; otherwise that one draws another. */
  locked: boolean;
}

export interface Body {
  inputs: Record<string, unknown>;
  params: Record<string, Scalar>;
}

/** A picture, a sound, numbers: one value that came out, and of which iteration. */
export interface Made {
  index: number;
  iteration: number[] | null;
  value: ValueShown;
  /** ms after the start. */
  at: number;
}

export interface RunError {
  code: string;
  message: string;
  node?: string | null;
  walk?: string | null;
  iteration?: number[];
  rank?: number | null;
  retryable?: boolean;
  /** The inputs of the call, by port: types and sizes. */
  given?: Record<string, string>;
}

export interface NodeTime {
  node: string;
  rank: number;
  calls: number;
  busy: number;
  queued: number;
  /** Calls that were not made, as their outputs were kept from earlier ones. */
  kept?: number;
  /** For a device loop, which `node` names, `busy` is the time of all its nodes. */
  walk?: string;
  /** For a loop: how often it has called its nodes. */
  inside?: Record<string, number>;
  /** True for a loop with parts on other ranks; its time includes waiting for them. */
  spans?: boolean;
}

export interface OutputShown {
  name: string;
  /** Pieces of text, joined; each pass of a loop of steps begins a line. */
  text: string;
  /** The passes of its last piece. */
  passes: readonly number[];
  made: Made[];
  /** Values that were left out of `made`: older steps of a long row of pictures. */
  left: number;
}

export type ResultState = "sending" | "waiting" | "running" | "asked" | "done" | "cancelled" | "failed";

export interface Result {
  deployment: string;
  task: string;
  state: ResultState;
  run: string | null;
  seed: number | null;
  /** ms since 1970. */
  startedAt: number;
  /** ms after the start. */
  firstOutputAt: number | null;
  outputs: Record<string, OutputShown>;
  seconds: number | null;
  queued: number | null;
  times: NodeTime[];
  /** Not of a run that goes on, nor of those that were kept by earlier versions. */
  usage?: Usage | null;
  /** The approval that it waits for. */
  approval?: ApprovalEvent | null;
  error: RunError | null;
  /** Faults of the request: pointer into its body -> sentence. */
  faults: { pointer: string; message: string }[];
  /** The service no longer has what it gave. */
  lost?: boolean;
}
