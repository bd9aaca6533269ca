// Numbers in typed arrays that grow. Pure.

const FIRST = 64;

/** A list of numbers: doubles while it grows, so that live traces allocate seldom. */
export class Numbers {
  data: Float64Array;
  size = 0;

  constructor(room = FIRST) {
    this.data = new Float64Array(room);
  }

  at(index: number): number {
    return this.data[index]!;
  }

  push(value: number): void {
    if (this.size === this.data.length) this.grow();
    this.data[this.size] = value;
    this.size += 1;
  }

  insert(index: number, value: number): void {
    if (this.size === this.data.length) this.grow();
    if (index < this.size) this.data.copyWithin(index + 1, index, this.size);
    this.data[index] = value;
    this.size += 1;
  }

  /** The first `count` go. */
  drop(count: number): void {
    this.data.copyWithin(0, count, this.size);
    this.size -= count;
  }

  private grow(): void {
    const grown = new Float64Array(this.size * 2);
    grown.set(this.data);
    this.data = grown;
  }
}

/** First index below `size` whose value is not below `wanted`; `size` where there is none. `value` never falls. */
export function lower(size: number, wanted: number, value: (index: number) => number, from = 0): number {
  let low = from;
  let high = size;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value(middle) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The quantile of sorted numbers, interpolated; `share` is 0 to 1. No numbers give 0. */
export function quantile(rising: ArrayLike<number>, share: number): number {
  if (rising.length === 0) return 0;
  const place = share * (rising.length - 1);
  const below = Math.floor(place);
  const [low, high] = [rising[below]!, rising[Math.min(below + 1, rising.length - 1)]!];
  return low + (high - low) * (place - below);
}
