import { beforeEach, expect, it, vi } from "vitest";
import type { DeploymentShown } from "../../src/messages/answers";
import { Editor } from "../../src/store/editor";
import { watchOf, type TapShown } from "../../src/store/watch";
import { lookAtRun, lookEvery, removeTaps, tapEntries, toggleTap } from "../../src/taps/actions";
import { cards, moveCard } from "../../src/taps/cards";
import { FakeService } from "../shell/service";

const PLACE = { walk: "draw", source: "dit.latents" };
let service: FakeService;
let armed: number;
let name = 0;

function made(deployed = true): Editor {
  name += 1;
  const id = `g${name}`;
  const editor = new Editor(id, { graph: { name: id } as never, placement: null });
  const deployment = { id, graph: id } as DeploymentShown;
  if (deployed) editor.store.setState({ deployments: { [id]: deployment } });
  service.answers.set(`POST /api/v1/deployments/${id}/taps`, ({ body }) => {
    const asked = JSON.parse(body ?? "{}") as Partial<TapShown>;
    const rest = { inside: false, expires_at: 0, interval: 0.25, preview: true, run: null, to: "" };
    const tap = { id: `t${(armed += 1)}`, ...rest, ...asked };
    service.answers.set(`DELETE /api/v1/deployments/${id}/taps/${tap.id}`, () => ({}));
    return tap;
  });
  return editor;
}

beforeEach(() => {
  service = new FakeService();
  armed = 0;
  cards.setState({}, true);
});

it("arms a place with its card, and takes both away the second time", async () => {
  const editor = made();
  const taps = () => watchOf(editor.state.name).get().taps;
  expect(tapEntries(editor, PLACE).map(({ label }) => label)).toEqual(["Tap this edge: see its values"]);
  await toggleTap(editor, PLACE);
  expect(taps()).toMatchObject([{ id: "t1", ...PLACE }]);
  expect(Object.keys(cards.getState())).toEqual(["t1"]);
  expect(tapEntries(editor, PLACE)).toHaveLength(2);
  await toggleTap(editor, PLACE);
  expect([taps(), cards.getState()]).toEqual([[], {}]);
});

it("looks more or less often, and at one run through another tap whose card stands where the old one stood", async () => {
  const editor = made();
  await toggleTap(editor, PLACE);
  moveCard("t1", [7, 8]);
  const taps = () => watchOf(editor.state.name).get().taps;
  service.answers.set(`PATCH /api/v1/deployments/${editor.state.name}/taps/t1`, ({ body }) => ({
    ...taps()[0],
    ...(JSON.parse(body ?? "{}") as object),
  }));
  await lookEvery(editor, taps()[0]!, 1);
  expect(taps()).toMatchObject([{ id: "t1", interval: 1 }]);
  await lookAtRun(editor, taps()[0]!, "r1");
  expect(taps()).toMatchObject([{ id: "t2", interval: 1, run: "r1" }]);
  expect(cards.getState()).toEqual({ t2: { at: [7, 8], pinned: false, moved: true } });
  await toggleTap(editor, { ...PLACE, source: "vae.pixels" });
  await removeTaps(editor);
  expect([watchOf(editor.state.name).get().taps, cards.getState()]).toEqual([[], {}]);
});

it("arms an edge out of a loop beside its source", async () => {
  const editor = made();
  const exit = { ...PLACE, to: "vae.latents" };
  await toggleTap(editor, PLACE);
  expect(tapEntries(editor, exit)).toHaveLength(1);
  await toggleTap(editor, exit);
  const taps = () => watchOf(editor.state.name).get().taps;
  expect(taps()).toMatchObject([{ ...PLACE, to: "" }, exit]);
  await lookAtRun(editor, taps()[1]!, "r1");
  expect(taps()).toMatchObject([
    { ...PLACE, to: "" },
    { ...exit, run: "r1" },
  ]);
  await toggleTap(editor, exit);
  expect(taps()).toMatchObject([{ ...PLACE, to: "" }]);
});

it("says why it can't", async () => {
  const editor = made(false);
  await toggleTap(editor, PLACE);
  expect(editor.state.toasts.at(-1)?.message).toMatch(/^Deploy the graph first/);
  expect(tapEntries(editor, null)).toEqual([]);
  const other = made();
  vi.stubGlobal("fetch", async () => new Response(JSON.stringify({ detail: "no such port" }), { status: 422 }));
  await toggleTap(other, PLACE);
  expect(other.state.toasts.at(-1)).toMatchObject({ kind: "error", message: "no such port" });
});
