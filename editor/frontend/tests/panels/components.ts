// A catalogue in small.
import { byName } from "../../src/catalogue/catalogue";
import type { Catalogue, Component, Port } from "../../src/messages/answers";

function port(written: string): Port {
  const [name = "", type = ""] = written.split(/ (.*)/s);
  return { name, type, optional: false, description: "" };
}

function component(name: string, inputs: string[], outputs: string[], rest: Partial<Component> = {}): Component {
  return {
    name,
    description: "",
    inputs: inputs.map(port),
    outputs: outputs.map(port),
    params: {},
    states: [],
    cost: "compute",
    weights: null,
    families: [],
    host: false,
    available: true,
    ...rest,
  };
}

const description = "Paints a picture from latents.";
export const catalogue: Catalogue = byName([
  component("bagel.vae_decoder", ["latents latents: float[h, w, c]"], ["pixels pixels: float[3, h, w]"], {
    description,
  }),
  component("bagel.vae_encoder", ["pixels pixels: float[3, h, w]"], ["latents latents: float[h, w, c]"]),
  component("flow.noise", [], ["latents latents: float[h, w, c]"]),
  component("text.tokenizer", ["text text"], ["ids tokens: int[n]"]),
  component("bagel.backbone", ["token tokens: int[1]"], ["token tokens: int[1]", "stop flag: bool"]),
  component("pi05.vision", ["image image"], ["embeddings embeddings: float[n, d]"], { available: false }),
  component("bagel.later", ["latents latents"], ["latents latents"], { available: false }),
]);
