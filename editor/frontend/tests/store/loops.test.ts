import { expect, it } from "vitest";
import type { LoopShown, PlanShown } from "../../src/messages/answers";
import * as edits from "../../src/document/edits";
import type { GraphDocument } from "../../src/document/types";
import { Editor } from "../../src/store/editor";
import { loopMark, loopReason, loopShown } from "../../src/session/loops";

const GRAPH: GraphDocument = { name: "g", nodes: {}, walks: { w: { body: [{ loop: "i", times: "3", body: [] }] } } };
const rest = { within: null, usual: [] };
const why = "`i` runs on the device: `a` on rank 0";
const resident: LoopShown = { walk: "w", loop: "i", resident: true, why, ...rest };
const stepped: LoopShown = { ...resident, loop: "j", resident: false, why: "stepped: `a` has a condition" };
const inner: LoopShown = { ...resident, loop: "k", why: "unrolled in `i`", within: "i", usual: [4] };

function planned(): Editor {
  const editor = new Editor("g", { graph: GRAPH, placement: null });
  const plan = { ok: true, loops: [resident, stepped] } as unknown as PlanShown;
  editor.store.setState({
    planned: { plan, of: editor.state.documents, hardware: "", problem: null, placing: false },
  });
  return editor;
}

it("a loop says where it is iterated as long as the plan is of what is open", () => {
  const editor = planned();
  expect(loopShown(editor.state, "w", "i")).toBe(resident);
  expect(loopShown(editor.state, "w", "j")).toBe(stepped);
  expect(loopShown(editor.state, "v", "i")).toBeNull();
  editor.editGraph("Move", (graph) => edits.place(graph, edits.walkCanvas("w"), { "loop:i": [4, 4] }));
  expect(loopShown(editor.state, "w", "i")).toBe(resident);
  editor.editGraph("Describe", (graph) => edits.setItem(graph, "w", "loop:i", { times: "4" }));
  expect(loopShown(editor.state, "w", "i")).toBeNull();
  editor.undo();
  expect(loopShown(editor.state, "w", "i")).toBe(resident);
  editor.edit("Place", (documents) => ({ ...documents, placement: { format: "walkgraph/placement@1" } as never }));
  expect(loopShown(editor.state, "w", "i")).toBeNull();
});

it("its mark and its reason are words", () => {
  expect([resident, stepped, inner].map(loopMark)).toEqual(["on the device", "stepped", "unrolled in i"]);
  expect([{ ...resident, usual: [10, 1, 4] }, stepped, inner].map(loopReason)).toEqual([
    "`i` runs on the device: `a` on rank 0. Iterations by default: 10, 1 or 4.",
    "Call by call, because `a` has a condition.",
    "Part of each iteration of `i`, which runs on the device as a whole. Iterations by default: 4.",
  ]);
});
