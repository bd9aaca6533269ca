// The piece of time that one or two pictures show. Pure.
import { fitted, kept, moved, zoomed, type Span } from "./span";

/** Pictures that share one move together. */
export class Timeline {
  span: Span = { from: 0, to: 1e6 };
  all: Span = { from: 0, to: 1e6 };
  readonly listeners = new Set<() => void>();

  set(span: Span): void {
    this.span = kept(span, this.all);
    for (const listener of this.listeners) listener();
  }

  fit(): void {
    this.set(fitted(this.all));
  }

  /** `by` below 1 shows less. `at`: what stays where it is. */
  zoom(by: number, at = (this.span.from + this.span.to) / 2): void {
    this.set(zoomed(this.span, by, at, (this.all.to - this.all.from) * 4));
  }

  /** By a share of what is shown. */
  move(share: number): void {
    this.set(moved(this.span, (this.span.to - this.span.from) * share));
  }

  /** The newest in sight at the right, as much as before. */
  follow(to: number): void {
    const length = this.span.to - this.span.from;
    const end = to + length * 0.03;
    this.span = { from: end - length, to: end };
    for (const listener of this.listeners) listener();
  }
}
