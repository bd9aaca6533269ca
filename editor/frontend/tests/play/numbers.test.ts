import { describe, expect, it } from "vitest";
import type { ValueShown } from "../../src/messages/answers";
import {
  bounds,
  curve,
  matrixOf,
  parseNumbers,
  rowOf,
  shapeWords,
  shrunk,
  tensorOf,
} from "../../src/play/model/numbers";
import { toBase64 } from "../../src/api/base64";

describe("typed numbers", () => {
  it.each([
    ["0.5", [0.5], [1]],
    ["1, 2 3;4", [1, 2, 3, 4], [4]],
    [
      "1 2\n\n3 4",
      [
        [1, 2],
        [3, 4],
      ],
      [2, 2],
    ],
    ["[[[1]],[[2]]]", [[[1]], [[2]]], [2, 1, 1]],
    ["-1e-3", [-0.001], [1]],
  ])("reads %s", (text, value, shape) => {
    expect(parseNumbers(text)).toEqual({ ok: true, value, shape });
  });

  it.each(["", "1 x", "1 2\n3", "[1, [2]]", "[1", "[]", "[null]", "[1e999]", `[${"1,".repeat(100_000)}1]`])(
    "refuses %.20s",
    (text) => {
      expect(parseNumbers(text).ok).toBe(false);
    },
  );

  it("are told by their shape", () => {
    expect([[1], [7], [4, 7]].map(shapeWords)).toEqual(["1 number", "7 numbers", "4 × 7 numbers"]);
  });
});

describe("tensors", () => {
  it("are read from nested lists, with holes", () => {
    expect(
      tensorOf({
        type: "state",
        shape: [2, 2],
        data: [
          [1, 2],
          [3, null],
        ] as never,
      }),
    ).toEqual({
      values: Float32Array.of(1, 2, 3, Number.NaN),
      shape: [2, 2],
    });
    expect(tensorOf({ type: "text", text: "x" })).toBeNull();
  });

  it("are read from bytes of every kind of number", () => {
    const read = (dtype: string, bytes: ArrayBufferLike, count: number) => [
      ...(tensorOf({ type: "x", dtype, shape: [count], base64: toBase64(new Uint8Array(bytes)) })?.values ?? []),
    ];
    expect(read("float32", Float32Array.of(0.5, -2).buffer, 2)).toEqual([0.5, -2]);
    expect(read("float16", Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x7c00).buffer, 4)).toEqual([
      1,
      -2,
      2 ** -24,
      Infinity,
    ]);
    expect(read("bfloat16", Uint16Array.of(0x3f80, 0xc040).buffer, 2)).toEqual([1, -3]);
    expect(read("int64", BigInt64Array.of(-5n).buffer, 1)).toEqual([-5]);
    expect(read("uint8", Uint8Array.of(200).buffer, 1)).toEqual([200]);
    expect(tensorOf({ type: "x", dtype: "odd", shape: [1], base64: "AAAA" })).toBeNull();
  });

  it("lie as rows and columns, sides of 1 left out", () => {
    const at = (shape: number[]) => {
      const { rows, columns } = matrixOf({ values: new Float32Array(shape.reduce((a, b) => a * b, 1)), shape });
      return [rows, columns];
    };
    expect([at([5]), at([1, 5]), at([1, 4, 7]), at([2, 3, 7])]).toEqual([
      [5, 1],
      [5, 1],
      [4, 7],
      [6, 7],
    ]);
  });
});

describe("drawing", () => {
  const box = { width: 10, height: 4, low: 0, high: 2 };

  it("draws a column from left to right, larger values higher, with gaps at holes", () => {
    const matrix = { values: Float32Array.of(0, 9, 2, 9, Number.NaN, 9, 1, 9), rows: 4, columns: 2 };
    expect(curve(matrix, 0, box)).toBe("M0.00 4.00L3.33 0.00M10.00 2.00");
  });

  it("finds bounds among finite numbers", () => {
    expect(bounds(Float32Array.of(Number.NaN, -1, 3))).toEqual([-1, 3]);
    expect(bounds(new Float32Array(0))).toEqual([0, 0]);
  });

  it("shrinks by means, and leaves what fits as it is", () => {
    const matrix = { values: Float32Array.of(1, 3, 5, 7), rows: 2, columns: 2 };
    expect(shrunk(matrix, 2)).toBe(matrix);
    expect([...shrunk(matrix, 1).values]).toEqual([4]);
  });
});

describe("values that come one after another", () => {
  const value = (...data: number[]) => ({ type: "tensor", shape: [data.length], data }) as unknown as ValueShown;

  it("make a row where they are few numbers of one shape", () => {
    expect(rowOf([value(6), value(14), value(22)])).toEqual({ values: Float32Array.of(6, 14, 22), shape: [3, 1] });
    expect(rowOf([value(1, 2), value(3, 4)])).toEqual({ values: Float32Array.of(1, 2, 3, 4), shape: [2, 2] });
  });

  it("stay single otherwise", () => {
    const many = value(...Array.from({ length: 33 }, (_, index) => index));
    for (const values of [
      [],
      [value(6)],
      [value(6), value(1, 2)],
      [many, many],
      [{ type: "json" }, { type: "json" }],
    ])
      expect(rowOf(values)).toBeNull();
  });
});
