import { describe, expect, test } from "vitest";
import type { Catalogue, Component, DeploymentShown } from "../../src/messages/answers";
import { Renewing } from "../../src/session/renewing";
import { Editor } from "../../src/store/editor";

const graph = { format: "walkgraph/graph@1", name: "g", nodes: {}, walks: {}, tasks: {} };

function component(description: string): Catalogue {
  return { "photo.soften": { name: "photo.soften", description } as Component };
}

/** An editor whose service has this palette, which can be changed. */
function opened(first: Catalogue) {
  const editor = new Editor("g", { graph, placement: null } as never, first);
  const service = { now: first, asked: 0, gone: false };
  const target = new EventTarget();
  const load = () => {
    service.asked += 1;
    return service.gone ? Promise.reject(new Error("gone")) : Promise.resolve(structuredClone(service.now));
  };
  return { editor, service, target, renewing: new Renewing(editor, load, target) };
}

function deployed(next: string | null): { deployments: Record<string, DeploymentShown> } {
  const one = { next: next ? { state: next } : null } as unknown as DeploymentShown;
  return { deployments: { g: one } };
}

const settled = () => new Promise((resolve) => setTimeout(resolve));

describe("the palette of an open graph", () => {
  test("is renewed when a person comes back", async () => {
    const { editor, service, target } = opened(component("old"));
    service.now = component("new");
    target.dispatchEvent(new Event("focus"));
    await settled();
    expect(editor.state.catalogue["photo.soften"]?.description).toBe("new");
  });

  test("is renewed when a deployment begins to restart, and when it has", async () => {
    const { editor, service } = opened(component("old"));
    editor.store.setState(deployed(null));
    await settled();
    const before = service.asked;
    service.now = component("new");
    editor.store.setState(deployed("starting"));
    editor.store.setState(deployed(null));
    editor.store.setState(deployed(null));
    await settled();
    expect(service.asked).toBe(before + 2);
    expect(editor.state.catalogue["photo.soften"]?.description).toBe("new");
  });

  test("stays the same object where nothing has changed, and as it was without an answer", async () => {
    const first = component("old");
    const { editor, service, target } = opened(first);
    target.dispatchEvent(new Event("focus"));
    await settled();
    expect(editor.state.catalogue).toBe(first);
    service.gone = true;
    target.dispatchEvent(new Event("focus"));
    await settled();
    expect(editor.state.catalogue).toBe(first);
  });

  test("is left alone once the graph is closed", async () => {
    const first = component("old");
    const { editor, service, target, renewing } = opened(first);
    service.now = component("new");
    target.dispatchEvent(new Event("focus"));
    renewing.dispose();
    target.dispatchEvent(new Event("focus"));
    await settled();
    expect(service.asked).toBe(1);
    expect(editor.state.catalogue).toBe(first);
  });
});
