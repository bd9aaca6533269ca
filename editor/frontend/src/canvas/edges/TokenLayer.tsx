// One canvas between the wires and the nodes, on which dots run along the wires; drawn only while some do.
import { useStoreApi, ViewportPortal } from "@xyflow/react";
import { createContext, useEffect, useRef } from "react";
import { flows } from "../../telemetry/activity";
import { isFar } from "../shapes/far";
import type { Dot, Tokens } from "./tokens";

export interface Flowing {
  tokens: Tokens;
  /** The Walk of the canvas; null: components, whose wires belong to several Walks. */
  walk: string | null;
}

export const FlowingOn = createContext<Flowing | null>(null);

const RADIUS = 4.2;
/** In pixels of the screen, however small the canvas is drawn. */
const SMALLEST = 3.2;
/** Dots are no text: more pixels than these are not seen, and each is drawn anew thirty times a second. */
const DENSEST = 1.5;
/** Between two drawings: half the frames of a screen are smooth enough for dots, and leave the rest to the others. */
const EVERY_MS = 30;
/** Most dots at once: no eye follows one among more. */
const MANY = 40;
const MANY_EVERY_MS = 50;

export function TokenLayer({ tokens }: { tokens: Tokens }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const flow = useStoreApi();
  useEffect(() => {
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    let colors = new Map<string, string>();
    let theme: string | undefined;
    let frame = 0;
    let drawn = 0;
    let many = false;
    const draw = (now: number) => {
      frame = 0;
      const sheet = canvas.current;
      if (!sheet) return;
      if (now - drawn < (many ? MANY_EVERY_MS : EVERY_MS) && !sheet.hidden) {
        frame = requestAnimationFrame(draw);
        return;
      }
      drawn = now;
      const state = flow.getState();
      const { transform, width, height } = state;
      const dots = still.matches || isFar(state) ? [] : tokens.at(now);
      many = dots.length > MANY;
      if (dots.length === 0) {
        tokens.still();
        sheet.hidden = true;
        return;
      }
      frame = requestAnimationFrame(draw);
      const shown = sheet.closest(".wg")?.className;
      if (shown !== theme) [theme, colors] = [shown, new Map()];
      const dense = place(sheet, transform, width, height);
      paint(sheet, transform, dense, dots, (color) => resolved(sheet, color, colors));
    };
    const wake = () => {
      if (frame === 0 && !document.hidden) frame = requestAnimationFrame(draw);
    };
    const leave = flows.watch(wake);
    return () => {
      leave();
      cancelAnimationFrame(frame);
    };
  }, [flow, tokens]);
  return (
    <ViewportPortal>
      <canvas ref={canvas} className="wg-tokens" aria-hidden hidden />
    </ViewportPortal>
  );
}

/** Over all that is seen: the viewport moves it, and this moves it back. Returns its pixels per pixel of the screen. */
function place(
  sheet: HTMLCanvasElement,
  [x, y, zoom]: [number, number, number],
  width: number,
  height: number,
): number {
  const dense = Math.min(DENSEST, devicePixelRatio);
  const [w, h] = [Math.round(width * dense), Math.round(height * dense)];
  if (sheet.width !== w) sheet.width = w;
  if (sheet.height !== h) sheet.height = h;
  sheet.hidden = false;
  sheet.style.width = `${width}px`;
  sheet.style.height = `${height}px`;
  sheet.style.transform = `scale(${1 / zoom}) translate(${-x}px, ${-y}px)`;
  return dense;
}

/** All dots of a colour are one path. `dense`: pixels per pixel of the screen. */
function paint(
  sheet: HTMLCanvasElement,
  [x, y, zoom]: [number, number, number],
  dense: number,
  dots: readonly Dot[],
  colorOf: (color: string) => string,
): void {
  const context = sheet.getContext("2d");
  if (!context) return;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, sheet.width, sheet.height);
  context.setTransform(dense * zoom, 0, 0, dense * zoom, dense * x, dense * y);
  context.strokeStyle = colorOf("var(--bg)");
  const radius = Math.max(RADIUS, SMALLEST / zoom);
  context.lineWidth = radius * 0.4;
  for (const [color, own] of Map.groupBy(dots, (dot) => dot.color)) {
    context.fillStyle = colorOf(color);
    context.beginPath();
    for (const dot of own) {
      context.moveTo(dot.x + radius, dot.y);
      context.arc(dot.x, dot.y, radius, 0, Math.PI * 2);
    }
    context.fill();
    context.stroke();
  }
}

/** A colour of the theme as a canvas takes it; kept for as long as the theme stays. */
function resolved(sheet: HTMLCanvasElement, color: string, known: Map<string, string>): string {
  let found = known.get(color);
  if (found === undefined) {
    sheet.style.color = color;
    known.set(color, (found = getComputedStyle(sheet).color));
  }
  return found;
}
