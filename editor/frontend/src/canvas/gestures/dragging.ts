// Dragging from the palette onto the canvas with pointer events, so that it works within a shadow root and by touch.
import type { Editor } from "../../store/editor";
import { strings } from "../../strings";

/** The uses and containers that give a Walk its order. */
export type Flow = "loop" | "map" | "parallel" | "sequence" | "choose" | "fork";

export type Payload =
  | { kind: "component"; component: string }
  | { kind: "node"; node: string }
  | { kind: "stream"; stream: string }
  | { kind: Flow | "note" | "frame" };

export interface DropTarget {
  /** Says whether a point of the window is over it, and what a drop there would do; shown next to the ghost. */
  over: (payload: Payload, x: number, y: number) => string | null;
  drop: (payload: Payload, x: number, y: number) => void;
  /** The drag is over, dropped or not. */
  leave: () => void;
  atCentre: (payload: Payload) => void;
}

let target: DropTarget | null = null;

/** The mounted canvas takes what is dropped; returns how to leave again. */
export function receive(receiver: DropTarget): () => void {
  target = receiver;
  return () => {
    if (target === receiver) target = null;
  };
}

interface Press {
  readonly currentTarget: EventTarget;
  readonly pointerId: number;
  readonly clientX: number;
  readonly clientY: number;
  readonly button: number;
}

const FAR = 5;

/** To be called at pointerdown; the drag begins once the pointer has moved a little, so that clicks stay clicks. */
export function startDrag(event: Press, payload: Payload): void {
  if (event.button !== 0 || !(event.currentTarget instanceof Element)) return;
  const home = event.currentTarget.closest(".wg") ?? event.currentTarget;
  const [x, y] = [event.clientX, event.clientY];
  let ghost: HTMLElement | null = null;
  const move = (at: PointerEvent) => {
    if (at.pointerId !== event.pointerId) return;
    if (!ghost && Math.hypot(at.clientX - x, at.clientY - y) < FAR) return;
    ghost ??= home.appendChild(ghostOf(payload));
    const says = target?.over(payload, at.clientX, at.clientY) ?? null;
    ghost.style.transform = `translate(${at.clientX + 10}px, ${at.clientY + 8}px)`;
    ghost.classList.toggle("nowhere", says === null);
    const hint = ghost.querySelector("small");
    if (hint) hint.textContent = says ?? strings.canvas.dropItOnTheCanvas;
    at.preventDefault();
  };
  const end = (at: PointerEvent | KeyboardEvent) => {
    if (at instanceof KeyboardEvent ? at.key !== "Escape" : at.pointerId !== event.pointerId) return;
    window.removeEventListener("pointermove", move);
    for (const name of ["pointerup", "pointercancel", "keydown"] as const)
      window.removeEventListener(name, end, true);
    if (!ghost) return;
    ghost.remove();
    at.preventDefault();
    if (
      at.type === "pointerup" &&
      at instanceof PointerEvent &&
      target?.over(payload, at.clientX, at.clientY) != null
    )
      target.drop(payload, at.clientX, at.clientY);
    target?.leave();
  };
  window.addEventListener("pointermove", move, { passive: false });
  for (const name of ["pointerup", "pointercancel", "keydown"] as const) window.addEventListener(name, end, true);
}

/** The same without dragging: to the middle of what the canvas shows. */
export function addAtCentre(editor: Editor, payload: Payload): void {
  if (target) target.atCentre(payload);
  else editor.say(strings.canvas.openTheGraphTab);
}

export function payloadName(payload: Payload): string {
  if (payload.kind === "component") return payload.component;
  if (payload.kind === "stream") return payload.stream;
  if (payload.kind === "choose") return strings.canvas.choice;
  return payload.kind === "node" ? payload.node : payload.kind;
}

function ghostOf(payload: Payload): HTMLElement {
  const ghost = document.createElement("div");
  ghost.className = "wg-drag-ghost";
  ghost.append(payloadName(payload), document.createElement("small"));
  return ghost;
}
