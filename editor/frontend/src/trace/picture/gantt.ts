// A picture of a model on a canvas: what the pointer and the wheel do with it, when it is drawn. React only mounts it.
import { blockAt, type Link } from "../model/find";
import type { Model } from "../model/model";
import { densityOf, MAP_HEIGHT, paint, TOP, type Palette, type Piece, type Scene } from "./paint";
import { rowAt, rowsOf, trackPlace, type Row, type Rows } from "./rows";
import { showMicros, type Span } from "../model/span";
import type { Timeline } from "../model/timeline";

/** A press that moves less is a click. */
const CLICK = 4;
/** The pointer finds a block so many pixels beside it. */
const REACH = 4;
const DENSITY_MS = 500;
const CELLS = 240;
/** Microseconds that a live picture is of at least. */
const LIVE_LEAST = 10e6;
const WHEEL = 0.0022;

/** The item under the pointer: a block, or the names of marks on the axis. */
export type Hover = { x: number; y: number } & ({ block: number } | { marks: string[] });

export interface Told {
  onSelect: (block: number | null) => void;
  onHover: (hover: Hover | null) => void;
  /** Rows have changed: names beside them must follow. */
  onRows: (rows: Rows) => void;
  /** The user has moved or zoomed it. */
  onMoved: () => void;
}

/** Things drawn in addition to the model. */
export interface Shown {
  selected: number | null;
  lane: number | null;
  lit: ReadonlySet<string>;
  path: readonly Piece[] | null;
  links: readonly Link[];
  closed: ReadonlySet<number>;
  /** Lanes whose other shards are shown. */
  opened: ReadonlySet<number>;
  /** It grows; with `follow` the newest is kept in sight. */
  live: boolean;
  follow: boolean;
}

export class Gantt {
  private model: Model;
  private shown: Shown;
  private rows: Rows = { list: [], height: 0 };
  private seen = "";
  private hovered: number | null = null;
  private hovering = false;
  private palette: Palette;
  private waiting = 0;
  private density: { at: number; version: number; all: Span; cells: Float64Array } = {
    at: -Infinity,
    version: -1,
    all: { from: 0, to: 0 },
    cells: new Float64Array(CELLS),
  };
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private drag: { kind: "pan" | "map" | "zoom"; x: number; moved: number; from: Span } | null = null;
  private readonly stop = new AbortController();
  private readonly observers: { disconnect: () => void }[] = [];

  constructor(
    private readonly scroller: HTMLElement,
    private readonly canvas: HTMLCanvasElement,
    private readonly timeline: Timeline,
    model: Model,
    shown: Shown,
    private readonly told: Told,
  ) {
    this.model = model;
    this.shown = shown;
    this.palette = paletteOf(canvas);
    this.listen();
    timeline.listeners.add(this.invalidate);
    this.invalidate();
  }

  dispose(): void {
    this.stop.abort();
    this.timeline.listeners.delete(this.invalidate);
    for (const observer of this.observers) observer.disconnect();
    cancelAnimationFrame(this.waiting);
  }

  show(model: Model, shown: Shown): void {
    if (model !== this.model) this.hover(null);
    this.model = model;
    this.shown = shown;
    this.invalidate();
  }

  readonly invalidate = (): void => {
    if (this.waiting === 0) this.waiting = requestAnimationFrame(this.draw);
  };

  /** So that the lane of a block is in sight. */
  reveal(block: number): void {
    const lane = this.model.laneAt(block);
    const row = this.rows.list.find((each) => each.kind === "lane" && each.lane === lane);
    if (!row) return;
    const { scrollTop, clientHeight } = this.scroller;
    if (row.top < scrollTop) this.scroller.scrollTop = row.top;
    else if (row.top + row.height > scrollTop + clientHeight - TOP)
      this.scroller.scrollTop = row.top + row.height - clientHeight + TOP;
  }

  // ── drawing ───────────────────────────────────────────────────────────────────────────────────

  private readonly draw = (): void => {
    this.waiting = 0;
    const { model, canvas, scroller } = this;
    const width = canvas.clientWidth;
    const height = scroller.clientHeight;
    const context = canvas.getContext("2d");
    if (!context || width === 0 || height === 0) return;
    if (this.shown.live && model.to > model.from) this.grow();
    this.size(context, width, height);
    this.rows = rowsOf(model, this.shown.closed, this.shown.opened);
    const signature = this.rows.list
      .map((row) => `${row.top} ${row.rank} ${row.kind === "lane" ? `${row.lane.name} ${row.shards}` : ""}`)
      .join();
    if (signature !== this.seen) {
      this.seen = signature;
      this.told.onRows(this.rows);
    }
    paint(context, this.scene(width, height));
  };

  private grow(): void {
    const { model, timeline, shown } = this;
    const length = timeline.span.to - timeline.span.from;
    timeline.all = { from: Math.min(model.from, model.to - LIVE_LEAST), to: model.to };
    if (!shown.follow || model.to <= timeline.span.to - length * 0.03) return;
    timeline.follow(model.to);
    // It has asked for the frame that is being drawn.
    cancelAnimationFrame(this.waiting);
    this.waiting = 0;
  }

  private size(context: CanvasRenderingContext2D, width: number, height: number): void {
    const { canvas } = this;
    const scale = window.devicePixelRatio || 1;
    const [wide, tall] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== wide || canvas.height !== tall) {
      [canvas.width, canvas.height] = [wide, tall];
      canvas.style.height = `${height}px`;
    }
    context.setTransform(scale, 0, 0, scale, 0, 0);
  }

  private scene(width: number, height: number): Scene {
    const { model, timeline, shown, density } = this;
    const now = performance.now();
    const { all } = timeline;
    const old = density.version !== model.version || density.all.from !== all.from || density.all.to !== all.to;
    // A live one changes with every packet.
    if (old && (!shown.live || now - density.at > DENSITY_MS))
      this.density = { at: now, version: model.version, all, cells: densityOf(model, all, CELLS) };
    return {
      model,
      rows: this.rows,
      span: timeline.span,
      all: timeline.all,
      width,
      height,
      scroll: this.scroller.scrollTop,
      palette: this.palette,
      selected: shown.selected,
      hovered: this.hovered,
      lit: shown.lit,
      lane: shown.lane,
      path: shown.path,
      links: shown.links,
      wall: shown.live ? model.wall : null,
      density: this.density.cells,
    };
  }

  // ── the pointer ───────────────────────────────────────────────────────────────────────────────

  private listen(): void {
    const { canvas, scroller } = this;
    const { signal } = this.stop;
    const on = <K extends keyof HTMLElementEventMap>(type: K, run: (event: HTMLElementEventMap[K]) => void) =>
      canvas.addEventListener(type, run as EventListener, { signal, passive: false });
    on("wheel", (event) => this.wheel(event));
    on("pointerdown", (event) => this.press(event));
    on("pointermove", (event) => this.move(event));
    on("pointerup", (event) => this.release(event));
    on("pointercancel", (event) => this.release(event));
    on("pointerleave", () => this.hover(null));
    on("dblclick", (event) => this.double(event));
    scroller.addEventListener("scroll", this.invalidate, { signal });
    const sized = new ResizeObserver(this.invalidate);
    sized.observe(scroller);
    const themed = new MutationObserver(() => {
      this.palette = paletteOf(canvas);
      this.invalidate();
    });
    const root = canvas.closest(".wg");
    if (root) themed.observe(root, { attributes: true, attributeFilter: ["class", "style"] });
    this.observers.push(sized, themed);
  }

  private timeAt(x: number): number {
    const { span } = this.timeline;
    return span.from + (x / this.canvas.clientWidth) * (span.to - span.from);
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const { timeline, canvas } = this;
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    if (event.shiftKey && !event.ctrlKey) {
      this.scroller.scrollTop += (event.deltaY || event.deltaX) * unit;
      return;
    }
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) timeline.move((event.deltaX * unit) / canvas.clientWidth);
    // A pinch comes as a wheel with Ctrl, in small steps.
    else timeline.zoom(Math.exp(event.deltaY * unit * WHEEL * (event.ctrlKey ? 4 : 1)), this.timeAt(event.offsetX));
    this.told.onMoved();
  }

  private press(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    // A pointer made by a test can't be captured.
    if (event.isTrusted) this.canvas.setPointerCapture(event.pointerId);
    const kind = event.offsetY < MAP_HEIGHT ? "map" : event.offsetY < TOP ? "zoom" : "pan";
    this.drag = { kind, x: event.offsetX, moved: 0, from: this.timeline.span };
    if (kind === "map") this.toMap(event.offsetX);
  }

  private move(event: PointerEvent): void {
    const was = this.pointers.get(event.pointerId);
    const { drag, timeline, canvas } = this;
    if (!was || !drag) {
      this.point(event.offsetX, event.offsetY);
      return;
    }
    const now = { x: event.offsetX, y: event.offsetY };
    this.pointers.set(event.pointerId, now);
    drag.moved += Math.abs(now.x - was.x) + Math.abs(now.y - was.y);
    if (this.pointers.size === 2) return this.pinch(event.pointerId, was, now);
    if (drag.kind === "map") this.toMap(now.x);
    else if (drag.kind === "pan" && drag.moved >= CLICK) {
      this.hover(null);
      timeline.move((was.x - now.x) / canvas.clientWidth);
      this.scroller.scrollTop += was.y - now.y;
      this.told.onMoved();
    }
  }

  private pinch(moved: number, was: { x: number }, now: { x: number }): void {
    const other = [...this.pointers].find(([id]) => id !== moved)?.[1];
    if (!other) return;
    const [before, after] = [Math.abs(was.x - other.x), Math.abs(now.x - other.x)];
    if (before < 8 || after < 8) return;
    this.timeline.zoom(before / after, this.timeAt((now.x + other.x) / 2));
    this.told.onMoved();
  }

  private release(event: PointerEvent): void {
    const { drag } = this;
    this.pointers.delete(event.pointerId);
    if (this.pointers.size > 0 || !drag) return;
    this.drag = null;
    if (drag.kind === "zoom" && drag.moved >= CLICK) {
      const [from, to] = [this.timeAt(drag.x), this.timeAt(event.offsetX)].sort((a, b) => a - b) as [number, number];
      this.timeline.set({ from, to });
      this.told.onMoved();
    } else if (drag.kind === "pan" && drag.moved < CLICK) this.told.onSelect(this.find(event.offsetX, event.offsetY));
  }

  private toMap(x: number): void {
    const { timeline, canvas } = this;
    const { all, span } = timeline;
    const middle = all.from + (x / canvas.clientWidth) * (all.to - all.from);
    const half = (span.to - span.from) / 2;
    timeline.set({ from: middle - half, to: middle + half });
    this.told.onMoved();
  }

  private double(event: MouseEvent): void {
    const block = this.find(event.offsetX, event.offsetY);
    if (block === null) this.timeline.fit();
    else {
      const [from, to] = [this.model.started.at(block), this.model.finished.at(block)];
      this.timeline.set({ from: from - (to - from), to: to + (to - from) });
    }
    this.told.onMoved();
  }

  private point(x: number, y: number): void {
    const marks = y >= MAP_HEIGHT && y < TOP ? this.marksAt(x) : [];
    const block = this.find(x, y);
    this.hover(marks.length ? { marks, x, y } : block === null ? null : { block, x, y });
  }

  private hover(hover: Hover | null): void {
    if (hover === null && !this.hovering) return;
    this.hovering = hover !== null;
    const block = hover && "block" in hover ? hover.block : null;
    if (block !== this.hovered) this.invalidate();
    this.hovered = block;
    this.told.onHover(hover);
  }

  private marksAt(x: number): string[] {
    const { model, timeline, canvas } = this;
    const reach = ((timeline.span.to - timeline.span.from) / canvas.clientWidth) * (REACH + 2);
    const at = this.timeAt(x);
    const found = model.marks.filter((mark) => Math.abs(mark.at - at) <= reach);
    return found.slice(-8).map(({ name, run, at }) => `${run.slice(0, 8)} ${name}, ${showMicros(at)}`);
  }

  private find(x: number, y: number): number | null {
    if (y < TOP) return null;
    const inside = y - TOP + this.scroller.scrollTop;
    const row = rowAt(this.rows, inside);
    if (row?.kind !== "lane") return null;
    const { span } = this.timeline;
    const reach = ((span.to - span.from) / this.canvas.clientWidth) * REACH;
    return blockAt(this.model, row.lane, trackAt(row, inside - row.top), this.timeAt(x), reach);
  }
}

function trackAt(row: Row & { kind: "lane" }, y: number): number {
  for (let track = row.lane.tracks.length - 1; track > 0; track -= 1) if (y >= trackPlace(track).top) return track;
  return 0;
}

/** The theme's colours as a canvas reads them: its tokens are mixed from each other. */
function paletteOf(element: Element): Palette {
  const probe = document.createElement("span");
  probe.hidden = true;
  element.parentElement?.append(probe);
  const style = getComputedStyle(probe);
  const color = (name: string) => {
    probe.style.color = `var(--${name})`;
    return style.color;
  };
  const palette = {
    bg: color("bg"),
    fg: color("fg"),
    muted: color("muted"),
    line: color("line"),
    soft: color("soft"),
    accent: color("accent"),
    bad: color("bad"),
    warn: color("warn"),
    onBlock: color("bg"),
    ranks: Array.from({ length: 8 }, (_, rank) => color(`rank-${rank}`)),
    font: `11px ${style.fontFamily}`,
  };
  probe.remove();
  return palette;
}
