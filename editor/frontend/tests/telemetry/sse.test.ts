import { expect, it } from "vitest";
import { EventParser, eventsOf } from "../../src/api/sse";

const STREAM =
  'event: accepted\nid: 1\ndata: {"run":"r","seed":7}\n\n: \n\n' +
  'event: output\nid: 2\ndata: {"text":"grün ☃"}\n\nevent: done\r\ndata: {"a":1}\r\n\r\n' +
  "data: one\ndata: two\n\nevent: lost\n\n";

const WHOLE = [
  { name: "accepted", data: '{"run":"r","seed":7}' },
  { name: "output", data: '{"text":"grün ☃"}' },
  { name: "done", data: '{"a":1}' },
  { name: "message", data: "one\ntwo" },
];

it("reads the same events wherever the text is split", () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const parser = new EventParser();
    const told = [];
    for (let at = 0; at < STREAM.length; at += size) told.push(...parser.push(STREAM.slice(at, at + size)));
    expect(told, `pieces of ${size}`).toEqual(WHOLE);
  }
});

it("keeps an event back until its empty line has come", () => {
  const parser = new EventParser();
  expect(parser.push('event: done\ndata: {"a":1}\n')).toEqual([]);
  expect(parser.push("\n")).toEqual([{ name: "done", data: '{"a":1}' }]);
});

it("reads an answer whose letters are split between bytes", async () => {
  const bytes = new TextEncoder().encode('event: output\ndata: {"text":"☃"}\n\n');
  const body = new ReadableStream({
    start(control) {
      for (const byte of bytes) control.enqueue(Uint8Array.of(byte));
      control.close();
    },
  });
  const told = [];
  for await (const event of eventsOf(new Response(body))) told.push(event);
  expect(told).toEqual([{ event: "output", text: "☃" }]);
});
