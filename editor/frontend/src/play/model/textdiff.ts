// Two texts word by word. Pure.
export interface Piece {
  kind: "same" | "left" | "right";
  text: string;
}

/** Beyond this many steps of comparison what lies between the common head and tail counts as different. */
const MOST_CELLS = 4_000_000;

/** The words of both in one row: `left` are in the first alone, `right` in the second alone. */
export function textDiff(left: string, right: string): Piece[] {
  const [a, b] = [wordsOf(left), wordsOf(right)];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail])
    tail += 1;
  const pieces: Piece[] = [];
  const add = (kind: Piece["kind"], text: string): void => {
    if (text === "") return;
    const last = pieces.at(-1);
    if (last?.kind === kind) last.text += text;
    else pieces.push({ kind, text });
  };
  add("same", a.slice(0, head).join(""));
  for (const piece of middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)))
    add(piece.kind, piece.text);
  add("same", tail > 0 ? a.slice(-tail).join("") : "");
  return pieces;
}

/** Words with the space behind them. */
function wordsOf(text: string): string[] {
  return text.match(/\s+|[^\s]+\s*/g) ?? [];
}

function middle(a: readonly string[], b: readonly string[]): Piece[] {
  if (a.length * b.length > MOST_CELLS || a.length === 0 || b.length === 0) {
    return [
      { kind: "left", text: a.join("") },
      { kind: "right", text: b.join("") },
    ];
  }
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  const at = (row: number, column: number): number => longest[row * width + column] ?? 0;
  for (let row = a.length - 1; row >= 0; row -= 1)
    for (let column = b.length - 1; column >= 0; column -= 1)
      longest[row * width + column] =
        a[row] === b[column] ? at(row + 1, column + 1) + 1 : Math.max(at(row + 1, column), at(row, column + 1));
  const pieces: Piece[] = [];
  let [row, column] = [0, 0];
  while (row < a.length || column < b.length) {
    if (row < a.length && column < b.length && a[row] === b[column]) {
      pieces.push({ kind: "same", text: a[row] ?? "" });
      row += 1;
      column += 1;
    } else if (column >= b.length || (row < a.length && at(row + 1, column) >= at(row, column + 1))) {
      pieces.push({ kind: "left", text: a[row] ?? "" });
      row += 1;
    } else {
      pieces.push({ kind: "right", text: b[column] ?? "" });
      column += 1;
    }
  }
  return pieces;
}
