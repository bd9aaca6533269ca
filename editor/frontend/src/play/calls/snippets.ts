// The call that does the same as the form, to be copied, in whatever a program is written in. Pure.
import { cli } from "./cli";
import { curl } from "./curl";
import { openai } from "./openai";
import { sdk, session } from "./sdk";
import { socket } from "./socket";
import type { Access, Call, Content, OpenAiRoute, Piece, Snippet } from "./values";
import { canOrder, fresh, isEmpty, request, widgetOf } from "../model/form";
import { parseNumbers } from "../model/numbers";
import type { Routes } from "../../api/models";
import type { Given, Part, TaskShown } from "../model/types";

export type { Access, Call, FileUsed, Snippet } from "./values";

export type Language = "curl" | "python" | "openai" | "socket" | "session" | "cli";

const WRITERS: Record<Language, (call: Call) => Snippet> = { curl, python: sdk, openai, socket, session, cli };

export function snippet(language: Language, call: Call): Snippet {
  return WRITERS[language](call);
}

/** The languages in which the task can be called. */
export function languagesOf(call: Call): Language[] {
  return [
    "curl",
    "python",
    ...(call.openai ? (["openai"] as const) : []),
    call.session ? "session" : "socket",
    "cli",
  ];
}

/** Common names of the parameter for the voice, as the service uses them. */
const VOICES = ["voice", "speaker"];

/** `routes`: of the deployment. `url`: origin of the service. */
export function callOf(task: TaskShown, given: Given, routes: Routes, url: string, access: Access): Call {
  const { deployment, name, inputs } = task;
  const parts = given.parts.filter((part) => !isEmpty(part) && part.input in inputs);
  const ordered = given.ordered && canOrder(task);
  const order = Object.keys(inputs);
  const sent = ordered ? parts : order.flatMap((input) => parts.filter((part) => part.input === input));
  const own = fresh(task).params;
  const chosen = Object.entries(request(task, given).params);
  const isOwn = ([param, value]: (typeof chosen)[number]) => own[param] === value;
  const speaks = VOICES.find((voice) => voice in task.params);
  const voice = speaks === undefined ? undefined : (given.params[speaks] ?? task.params[speaks]?.default);
  const pieces = sent.map(pieceOf);
  return {
    url,
    access,
    deployment,
    task: name,
    pieces,
    ordered,
    params: Object.fromEntries(chosen.filter((entry) => !isOwn(entry))),
    // Parameters that the form sets only for a person watching.
    watching: Object.fromEntries(chosen.filter(isOwn)),
    session: task.session,
    makes: makesOf(name, routes),
    openai: routeOf(task, pieces, routes),
    voice: speaks !== undefined && typeof voice === "string" ? { name: speaks, value: voice } : null,
  };
}

function pieceOf(part: Part): Piece {
  return { input: part.input, modality: part.modality, content: contentOf(part), turn: part.turn };
}

function contentOf({ modality, text, media }: Part): Content {
  const widget = widgetOf(modality);
  if (widget === "text") return { kind: "text", text };
  if (widget === "media") return { kind: "media", mime: media?.mime ?? "", data: media?.data ?? "" };
  const found = parseNumbers(text);
  return { kind: "numbers", numbers: found.ok ? found.value : [] };
}

const MAKES: readonly [route: string, makes: NonNullable<Call["makes"]>][] = [
  ["chat.completions", "text"],
  ["images.generations", "image"],
  ["images.edits", "image"],
  ["audio.speech", "audio"],
];

function makesOf(task: string, routes: Routes): Call["makes"] {
  return MAKES.find(([route]) => routes[route]?.includes(task))?.[1] ?? null;
}

function routeOf(task: TaskShown, pieces: readonly Piece[], routes: Routes): Call["openai"] {
  const shows = pieces.some(({ modality }) => modality === "image");
  const pictures: OpenAiRoute[] = shows ? ["images.edits"] : ["images.generations", "images.edits"];
  const wanted: OpenAiRoute[] = [...pictures, "chat.completions", "audio.speech"];
  const route = wanted.find((name) => routes[name]?.includes(task.name));
  if (route === undefined) return null;
  const isDefault = routes[route]?.[0] === task.name;
  return { route, model: isDefault ? task.deployment : `${task.deployment}/${task.name}` };
}
